"""What every package of aici needs: errors, ids, the tokenizer's files, the cache folder. Imports nothing of ours."""
