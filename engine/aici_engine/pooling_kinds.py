"""The ways to make one vector of a prompt. Apart from `pooling.py`, because numpy is not needed to name a way."""

from typing import Literal, get_args

Pooling = Literal["mean", "last"]
"""mean: the mean of the states of all tokens. last: the state of the last token, which has seen all others."""
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
