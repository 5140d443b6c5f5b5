"""JSON and token ids as text: read, written, shared between turns, worked on off the loop."""
