"""The OpenAI protocol: chat completions, completions and models. README.md says what is supported."""
