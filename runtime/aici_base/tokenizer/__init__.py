"""Find a model's tokenizer, convert a GGUF file's, and read the bytes of every token."""
