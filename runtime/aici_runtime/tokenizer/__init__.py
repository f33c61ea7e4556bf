"""Turn the files of a tokenizer into data for guests: the bytes of all tokens, and the token trie."""
