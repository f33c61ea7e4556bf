"""Find the tokenizer of a model, convert the tokenizer of a GGUF file, and read the bytes of every token."""
