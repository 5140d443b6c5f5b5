"""What is kept of a turn, and how it is read."""
