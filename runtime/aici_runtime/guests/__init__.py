"""One guest: its instance, what the host offers it, and its callbacks."""
