"""How many tokens of prompts a step may compute, so that decoding sequences do not wait too long.

The engine measures costs while running, so no fixed number of tokens must suit all models and machines: the time of a
step without prompts, by the number of decoding sequences, and the time that a token of a prompt adds.
"""

LEAST = 16
"""A step computes at least this many tokens of prompts, at any cost, so prompts make progress."""
LONGEST_S = 0.5
"""The longest step of prompts alone, roughly: new requests and aborts wait for the end of a step."""
_NEWS = 0.1
"""The weight of the newest step in the moving averages."""


class PrefillBudget:
    """A step with prompts takes about `slowdown` times as long as a step without. `None` sets no bound."""

    def __init__(self, slowdown: float | None) -> None:
        self._slowdown = slowdown
        self._decode_s: dict[int, float | None] = {}
        self._prefill_s, self._num_tokens = 0.0, 0.0
        self._is_warm = False

    def max_prompt_tokens(self, num_decodes: int) -> int | None:
        """Return the number of prompt tokens for a step with `num_decodes` decoding sequences; `None` for no bound.

        Return 0 once a batch size, to measure a step without prompts.
        """
        if self._slowdown is None:
            return None
        if num_decodes == 0:
            tokens = self._affordable(LONGEST_S)
            # A power of two is the same for similar times, so prompts are cut alike from run to run.
            return tokens and 1 << tokens.bit_length() - 1
        size = num_decodes.bit_length()
        if size not in self._decode_s:
            self._decode_s[size] = None
            return 0
        decode_s = self._decode_s[size]
        if decode_s is None:
            return None
        return self._affordable(min(LONGEST_S, (self._slowdown - 1) * decode_s)) or LEAST

    def expected_s(self, *, num_decodes: int, num_others: int) -> float:
        """Return about how long such a step takes, as far as is known."""
        decode_s = self._decode_s.get(max(1, num_decodes).bit_length()) or 0.0
        return decode_s + (num_others * self._prefill_s / self._num_tokens if num_others and self._num_tokens else 0.0)

    def record_step(self, time_s: float, *, num_decodes: int, num_others: int) -> None:
        """Record a step's time: `num_decodes` decoding sequences and `num_others` further tokens."""
        if not self._is_warm:
            # The first step reads the weights from the disk and starts threads: its time is no guide.
            self._is_warm = True
            return
        size = max(1, num_decodes).bit_length()
        known = self._decode_s.get(size)
        if num_others:
            self._prefill_s += max(0.0, time_s - (known or 0.0)) - _NEWS * self._prefill_s
            self._num_tokens += num_others - _NEWS * self._num_tokens
        else:
            # A busy machine makes single steps many times as long, so a step counts at most double the average.
            self._decode_s[size] = time_s if known is None else known + _NEWS * (min(time_s, 2 * known) - known)

    def _affordable(self, time_s: float) -> int | None:
        """Return the tokens that `time_s` pays for, at least `LEAST`; `None` before the first measurement."""
        return max(LEAST, int(time_s * self._num_tokens / self._prefill_s)) if self._prefill_s else None
