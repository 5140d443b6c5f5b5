"""Session logic: turns, records, dialects. Knows no process, socket or server."""
