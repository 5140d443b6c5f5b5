"""The form of Anthropic's Messages API: requests, replies and streams of chat turns."""
