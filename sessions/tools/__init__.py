"""Episode tools: what an environment serves to the agent that plays it."""
