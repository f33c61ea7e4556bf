"""Models: the interface that the engine calls, and unmodified transformers decoders on paged attention."""
