"""Notations for grammars: Lark, GBNF, and the guest's own (`.y`). All three are read into one tree (`tree.py`)."""
