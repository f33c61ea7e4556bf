"""Masks, the pipeline and log-probabilities in C: the results of `masks`, `pipeline` and `logprobs` in a tenth of the
time.

The results differ for near ties, and in the last digits of log-probabilities.
"""

import ctypes
from ctypes import c_double, c_float, c_int32, c_int64, c_uint64, c_void_p

from aici_base.errors import AiciError
from aici_base.ids import TokenId
from aici_engine.config import SamplingParams
from aici_engine.events import TokenScore
from aici_engine.sample.masks import Bits, Logits
from aici_engine.sample.pipeline import NOT_FINITE, NOTHING_ALLOWED

_SPARE = 32
_ERRORS = {-1: NOTHING_ALLOWED, -2: NOT_FINITE}


class NativeSampling:
    """Samples rows of `num_logits` logits, one at a time. All calls share the same working memory."""

    def __init__(self, library: ctypes.CDLL, num_logits: int) -> None:
        # The calls are short and keep the GIL: to get a released GIL back may take milliseconds.
        held = ctypes.PyDLL(library._name)
        self._choose, self._mask, self._scores = held.aici_choose, held.aici_mask, held.aici_scores
        self._choose.argtypes = (
            *(c_void_p, c_int64, c_float, c_int64, c_double, c_double, c_uint64),
            *(c_void_p, c_void_p),
        )
        self._choose.restype = c_int64
        self._mask.argtypes, self._mask.restype = (c_void_p, c_void_p, c_int64), None
        self._scores.argtypes = c_void_p, c_int64, c_int64, c_void_p, c_void_p, c_void_p
        self._scores.restype = c_int64
        self._ids = (c_int32 * (2 * num_logits + _SPARE))()
        self._weights = (c_float * (2 * num_logits + _SPARE))()
        self._total = c_double()
        self._total_at = ctypes.addressof(self._total)
        self._memory = ctypes.addressof(self._ids), ctypes.addressof(self._weights)

    def mask(self, row: Logits, bits: Bits, num_tokens: int) -> None:
        """Do as `masks.TableMask`."""
        self._mask(_address(row), bits.ctypes.data, num_tokens)

    def choose(self, row: Logits, params: SamplingParams, draw: int) -> TokenId:
        """Do as `pipeline.choose`."""
        temperature = 0.0 if params.greedy else params.temperature
        token = self._choose(
            _address(row), len(row), temperature, params.top_k, params.top_p, params.min_p, draw, *self._memory
        )
        if token < 0:
            raise ValueError(_ERRORS[token])
        return TokenId(token)

    def log_softmax(self, row: Logits, token: TokenId, k: int) -> TokenScore:
        """Do as `logprobs.log_softmax`."""
        num = self._scores(_address(row), len(row), k, self._total_at, *self._memory)
        if num < 0:
            raise AiciError(NOT_FINITE)
        total = self._total.value
        pairs = zip(self._ids[:num], self._weights[:num], strict=True)
        likeliest = tuple((TokenId(each), logit - total) for each, logit in pairs)
        return TokenScore(token, float(row[token]) - total, likeliest)


def _address(row: Logits) -> int:
    """Return the address of a writable row, in a third of the time of `row.ctypes`."""
    return ctypes.addressof(ctypes.c_char.from_buffer(row.data))
