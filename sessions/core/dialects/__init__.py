"""What engines speak: how a turn is put to each kind, and how its reply is read."""
