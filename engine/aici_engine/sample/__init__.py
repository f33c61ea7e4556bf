"""From logits to the next token of every row."""
