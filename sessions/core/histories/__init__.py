"""How requests attach to a session, and what of it is kept."""
