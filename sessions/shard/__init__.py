"""A shard: uvicorn protocol for lent connections, and the wiring of the app."""
