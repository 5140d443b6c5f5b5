"""The store of replay blobs."""
