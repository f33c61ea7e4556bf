"""Ids that cross package borders. Plain ints on the wire."""

from typing import NewType

TokenId = NewType("TokenId", int)
SeqId = NewType("SeqId", int)
"""Chosen by the engine, one per sequence, never 0 (the original leaks a mask slot for 0)."""
