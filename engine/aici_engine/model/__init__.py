"""Hugging Face decoders, unmodified, over our paged attention."""
