"""Request heads, chunked bodies and the replies of the routing layer, sans-IO."""
