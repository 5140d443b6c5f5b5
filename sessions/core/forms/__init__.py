"""The forms in which clients ask for a turn and get it: bodies, replies, streams."""
