"""A simulated inference engine."""
