"""Drafts of the next tokens, which a forward pass checks: several tokens a pass, and the same text."""
