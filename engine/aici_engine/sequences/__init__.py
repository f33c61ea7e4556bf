"""The state of a sequence, in parts with one owner a part, and the group of a request's sequences."""
