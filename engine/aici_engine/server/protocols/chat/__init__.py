"""One turn of a chat, for any protocol: from messages and tools to text, tool calls and an end."""
