"""Engines on other machines: a host that runs an engine there, and the server's connection to the host."""
