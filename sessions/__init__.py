"""Sessile: a sticky session server for multi-turn LLM rollouts, N processes behind one address."""
