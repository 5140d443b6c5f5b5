"""The head-reading front of a group: lends each exchange to the shard that owns it."""
