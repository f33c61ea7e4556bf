"""Ids that cross package borders; plain ints on the wire."""

from typing import NewType

TokenId = NewType("TokenId", int)
SeqId = NewType("SeqId", int)
"""Chosen by the engine, one per sequence, never 0 (upstream's runtime leaks a mask slot for 0)."""
