"""Clients of the inference engine."""
