"""The sessions that are open: their options, limits, metadata and end."""
