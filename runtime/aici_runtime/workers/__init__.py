"""The processes that run guests."""
