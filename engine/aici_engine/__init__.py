"""The inference engine: paged attention over a ragged batch, with a controller at every step."""
