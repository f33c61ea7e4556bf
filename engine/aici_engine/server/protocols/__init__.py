"""A folder for each client protocol. No protocol imports another; `chat` is common to openai and anthropic.

To add a protocol or an endpoint: see `aici_engine.server.api.app`.
"""
