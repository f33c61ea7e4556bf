"""A turn of a chat: messages and tools in; text, tool calls and an end out. Independent of any protocol."""
