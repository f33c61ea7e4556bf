"""The base of all aici packages: errors, ids, tokenizer files, and the cache folder. Imports no other aici package."""
