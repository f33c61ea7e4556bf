"""A folder for each protocol that clients speak. No protocol imports another; `chat` is common to openai and anthropic.

To add a protocol, or an endpoint of one: see `aici_engine.server.api.app`.
"""
