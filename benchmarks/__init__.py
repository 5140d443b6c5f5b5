"""Benchmarks: what the design promises in figures, measured beside known servers."""
