"""The Anthropic protocol: `/v1/messages` and `/v1/messages/count_tokens`, as the official SDK of 2026 speaks it.

What is not supported is refused by name. Accepted without effect is only what cannot change the answer: `metadata`,
`cache_control` (there is no cache that would cost anything), the headers `anthropic-version` and `anthropic-beta`
(a beta does something only through fields, and those are refused), and null for a field, which is the field left out.
"""
