"""Who owns a request: ids, keys, kinds. Pure."""
