"""The state of a sequence, in parts with one owner each, and of the sequences of one request."""
