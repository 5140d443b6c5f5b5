"""A session as training samples."""
