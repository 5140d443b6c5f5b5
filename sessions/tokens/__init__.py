"""Tokenizers, chat templates, TITO families."""
