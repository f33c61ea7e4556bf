"""The Anthropic protocol: `/v1/messages` and `/v1/messages/count_tokens`, for the official SDK of 2026.

Unsupported fields are refused by name. A field is accepted without effect only if the field cannot change the answer:
`metadata`, `cache_control` (caching costs nothing here), and the headers `anthropic-version` and `anthropic-beta` (a
beta acts only through fields, and unknown fields are refused). A null field counts as absent.
"""
