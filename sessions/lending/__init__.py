"""Lending a client connection: messages, connection states, shared state, the front."""
