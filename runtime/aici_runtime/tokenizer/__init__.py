"""From a tokenizer's files to what guests read: the bytes of tokens, and their trie."""
