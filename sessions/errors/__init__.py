"""Errors, by who is at fault and about what; see `client_visible` for their one shape."""
