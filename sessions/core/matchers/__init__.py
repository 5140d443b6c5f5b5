"""Whether a message that a client sent is the one that its session holds."""
