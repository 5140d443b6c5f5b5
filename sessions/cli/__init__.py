"""The command line: python -m sessions."""
