"""Requests and replies as the core sees them: routes, headers, statuses."""
