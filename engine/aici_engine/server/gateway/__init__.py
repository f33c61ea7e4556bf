"""Between a socket and a route: HTTP server, request ids, route policies, API keys, limits, errors, and SSE."""
