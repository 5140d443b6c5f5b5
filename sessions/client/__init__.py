"""The Python client of a Sessile server."""
