"""The server: an API process that speaks the protocols, and an engine process that computes."""
