"""Record the messages between a runtime and its engine, and replay a recording."""
