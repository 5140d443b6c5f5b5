"""Exactly once: what makes two requests the same turn, and who waits for it."""
