"""Between a socket and a route: the HTTP server, request ids, API keys, rates, limits, and server-sent events."""
