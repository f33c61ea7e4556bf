"""vLLM in the place of aici's own scheduler, cache and model: the same requests, events and guests."""
