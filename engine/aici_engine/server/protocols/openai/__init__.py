"""The OpenAI protocol: chats, completions, models."""
