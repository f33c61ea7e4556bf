"""How much of prompts goes into a step beside sequences that decode: what the listeners of those will bear.

Both costs are measured while the engine runs, so no number of tokens need be right for every model and machine: the
time of a step that only decodes, by how many do, and what each token of a prompt adds to that.
"""

LEAST = 16
"""So many tokens are computed beside decodes, whatever it costs: a prompt goes on."""
_NEWS = 0.1
"""The weight of the newest step in what is known of the time of steps."""


class Pace:
    """A step that also computes prompts takes about `slowdown` times as long as one that does not.

    None sets no bound.
    """

    def __init__(self, slowdown: float | None) -> None:
        self._slowdown = slowdown
        self._decode_s: dict[int, float | None] = {}
        self._prefill_s, self._num_tokens = 0.0, 0.0

    def num_beside(self, num_decodes: int) -> int | None:
        """Tokens; None for any number. 0, once for each size of batch: to see how long a step takes without."""
        if num_decodes == 0 or self._slowdown is None:
            return None
        size = num_decodes.bit_length()
        if size not in self._decode_s:
            self._decode_s[size] = None
            return 0
        decode_s = self._decode_s[size]
        if decode_s is None or not self._num_tokens:
            return None
        token_s = self._prefill_s / self._num_tokens
        return max(LEAST, int((self._slowdown - 1) * decode_s / token_s)) if token_s else None

    def took(self, time_s: float, *, num_decodes: int, num_others: int) -> None:
        """A forward pass over `num_others` tokens beside `num_decodes` of sequences that decode."""
        size = max(1, num_decodes).bit_length()
        known = self._decode_s.get(size)
        if num_others:
            self._prefill_s += max(0.0, time_s - (known or 0.0)) - _NEWS * self._prefill_s
            self._num_tokens += num_others - _NEWS * self._num_tokens
        else:
            # A neighbour on the machine makes some steps take many times as long: no news is worse than double.
            self._decode_s[size] = time_s if known is None else known + _NEWS * (min(time_s, 2 * known) - known)
