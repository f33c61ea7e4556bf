"""A server as a backend, through AICI REST, with the standard library alone."""
