"""A server that runs requests, reached through AICI REST with nothing but the standard library."""
