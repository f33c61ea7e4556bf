"""A turn of a chat, whatever the protocol: messages and tools in; text, calls and an end out."""
