"""The result of a step in guest ABI v2: a list of branches, each with a mask to sample by, splices, or both.

No branch stops the sequence; several branches fork the sequence. A branch without a mask samples nothing and applies
its single splice. A branch with a mask samples a token, appends the token, and then applies the first splice whose
`when_sampled` holds the token or is empty.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from aici_base.ids import TokenId
from aici_runtime.guests.driver import MAX_BACKTRACK, InvalidResultError, NotEnabledError, shorten
from aici_runtime.guests.driver import field as read


@dataclass(frozen=True, slots=True)
class GuestSplice:
    """Remove `backtrack` tokens, then append `ff_tokens`."""

    backtrack: int
    ff_tokens: list[TokenId]
    when_sampled: Sequence[int] = ()

    @property
    def is_nothing(self) -> bool:
        return not self.backtrack and not self.ff_tokens


@dataclass(frozen=True, slots=True)
class Branch:
    """`mask`: one bit per token; None samples nothing."""

    mask: bytearray | None = None
    splices: Sequence[GuestSplice] = field(default_factory=list)
    temperature: float | None = None

    def splice_for(self, token: int) -> GuestSplice | None:
        """Return the splice to apply after `token` was sampled, or None."""
        return next((s for s in self.splices if not s.when_sampled or token in s.when_sampled), None)


NOTHING = Branch(splices=[GuestSplice(0, [])])
"""The branch of a guest that suspends: nothing happens, and the guest is asked again in the next step."""


def parse(answer: Any, masks: Sequence[bytearray], vocab_size: int) -> list[Branch]:
    """Parse the result of a callback. `masks`: the masks returned during the callback; number 1 names the first.

    Raise InvalidResultError for a result that breaks the ABI.
    """
    return [_branch(item, masks, vocab_size) for item in read(answer, "branches", list)]


def _branch(item: Any, masks: Sequence[bytearray], vocab_size: int) -> Branch:
    splices = [_splice(splice, vocab_size) for splice in read(item, "splices", list)]
    number, temperature = item.get("sample_mask"), item.get("temperature")
    if temperature is not None and (type(temperature) not in (int, float) or temperature < 0):
        raise InvalidResultError(f"invalid temperature in {shorten(item)}")
    if number is None:
        if len(splices) != 1 or splices[0].when_sampled:
            raise InvalidResultError("a branch without sample_mask needs one splice with empty when_sampled")
        return Branch(None, splices, temperature)
    if type(number) is not int or not 1 <= number <= len(masks):
        raise InvalidResultError(f"sample_mask {shorten(number)} was not handed out in this call")
    return Branch(masks[number - 1], splices, temperature)


def _splice(item: Any, vocab_size: int) -> GuestSplice:
    backtrack = read(item, "backtrack", int)
    if not 0 <= backtrack < MAX_BACKTRACK:
        raise InvalidResultError(f"backtrack out of range: {backtrack}")
    tokens = read(item, "ff_tokens", list)
    when_sampled = read(item, "when_sampled", list)
    for name, values in (("ff_token", tokens), ("when_sampled", when_sampled)):
        for index, token in enumerate(values):
            if type(token) is not int or not 0 <= token < vocab_size:
                raise InvalidResultError(f"{name} out of range ({token} >= {vocab_size} at {index})")
    return GuestSplice(backtrack, tokens, when_sampled)


def encode(branches: Sequence[Branch], row: int, masks: list[bytearray], capabilities: Collection[str]) -> bytes:
    """Return the result as JSON and append its masks to `masks`.

    Raise NotEnabledError if the result needs a capability that the engine lacks.
    """
    if len(branches) > 1 and "fork" not in capabilities:
        raise NotEnabledError("forking not enabled in this host")
    for branch in branches:
        # An engine without backtracking cannot tell a splice that removes only the token just sampled from no splice.
        free = 0 if branch.mask is None else 1
        if "backtrack" not in capabilities and any(splice.backtrack > free for splice in branch.splices):
            raise NotEnabledError("backtracking not enabled in this host")
        if "ff_tokens" not in capabilities and branch.splices:
            raise NotEnabledError("ff_tokens not enabled in this host")
    return orjson.dumps({"branches": [_encode(branch, row, masks) for branch in branches]})


def _encode(branch: Branch, row: int, masks: list[bytearray]) -> dict[str, object]:
    number: int | None = None
    if branch.mask is not None:
        number = -len(masks) or row
        masks.append(branch.mask)
    return {
        "sample_mask": number,
        "temperature": branch.temperature,
        "splices": [
            {"when_sampled": list(s.when_sampled), "backtrack": s.backtrack, "ff_tokens": s.ff_tokens}
            for s in branch.splices
        ],
    }
