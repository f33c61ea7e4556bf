"""How much of prompts goes into a step: what those will bear who wait for it to end.

Costs are measured while the engine runs, so no number of tokens need be right for every model and machine: the time of
a step that only decodes, by how many do, and what each token of a prompt adds to that.
"""

LEAST = 16
"""So many tokens are computed, whatever it costs: a prompt goes on."""
LONGEST_S = 0.5
"""Who arrives, and who gives up, waits for a step of prompts alone no longer than about this."""
_NEWS = 0.1
"""The weight of the newest step in what is known of the time of steps."""


class PrefillBudget:
    """A step that also computes prompts takes about `slowdown` times as long as one that does not.

    None sets no bounds.
    """

    def __init__(self, slowdown: float | None) -> None:
        self._slowdown = slowdown
        self._decode_s: dict[int, float | None] = {}
        self._prefill_s, self._num_tokens = 0.0, 0.0
        self._is_warm = False

    def max_prompt_tokens(self, num_decodes: int) -> int | None:
        """Of prompts, beside so many sequences that decode; None for any number. 0, once for each size of batch: to see
        how long a step takes without."""
        if self._slowdown is None:
            return None
        if num_decodes == 0:
            tokens = self._affordable(LONGEST_S)
            # The same for times that differ little: where a prompt is cut should not differ from run to run.
            return tokens and 1 << tokens.bit_length() - 1
        size = num_decodes.bit_length()
        if size not in self._decode_s:
            self._decode_s[size] = None
            return 0
        decode_s = self._decode_s[size]
        if decode_s is None:
            return None
        return self._affordable(min(LONGEST_S, (self._slowdown - 1) * decode_s)) or LEAST

    def record_step(self, time_s: float, *, num_decodes: int, num_others: int) -> None:
        """A forward pass over `num_others` tokens beside `num_decodes` of sequences that decode."""
        if not self._is_warm:
            # The first pass reads the weights from the disk, starts threads, and tells nothing of others.
            self._is_warm = True
            return
        size = max(1, num_decodes).bit_length()
        known = self._decode_s.get(size)
        if num_others:
            self._prefill_s += max(0.0, time_s - (known or 0.0)) - _NEWS * self._prefill_s
            self._num_tokens += num_others - _NEWS * self._num_tokens
        else:
            # A neighbour on the machine makes some steps take many times as long: no news is worse than double.
            self._decode_s[size] = time_s if known is None else known + _NEWS * (min(time_s, 2 * known) - known)

    def _affordable(self, time_s: float) -> int | None:
        """None if nothing is known yet."""
        return max(LEAST, int(time_s * self._num_tokens / self._prefill_s)) if self._prefill_s else None
