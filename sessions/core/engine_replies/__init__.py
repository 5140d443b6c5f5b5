"""What came from the engine: its errors, what was cut out of a reply, what it says."""
