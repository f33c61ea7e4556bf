"""Masks, the pipeline and log-probabilities in C: the results of `masks`, `pipeline` and `logprobs` in a tenth of the
time.

The results differ for near ties, and in the last digits of log-probabilities.
"""

import ctypes
import struct
from collections.abc import Sequence
from ctypes import c_char, c_double, c_float, c_int32, c_int64, c_uint64, c_void_p

from aici_base.errors import AiciError
from aici_base.ids import TokenId
from aici_engine.config import SamplingParams
from aici_engine.events import TokenScore
from aici_engine.sample.masks import Bits, Logits, MaskApplier
from aici_engine.sample.pipeline import NOT_FINITE, NOTHING_ALLOWED
from aici_engine.sample.rows import RowToChoose

_SPARE = 32
_ERRORS = {-1: NOTHING_ALLOWED, -2: NOT_FINITE}


_ROW = struct.Struct("=QQddQqdq")
"""`sampled_row` of sample.c: addresses of row and bits, top-p, min-p, draw, top-k, temperature, token."""
_ROW_WORDS = _ROW.size // 8


class NativeSampling:
    """Samples rows of `num_logits` logits. All calls share the same working memory."""

    def __init__(self, library: ctypes.CDLL, num_logits: int) -> None:
        # The calls are short and keep the GIL: to get a released GIL back may take milliseconds.
        held = ctypes.PyDLL(library._name)
        self._choose, self._mask, self._scores = held.aici_choose, held.aici_mask, held.aici_scores
        self._sample_rows = held.aici_sample_rows
        self._sample_rows.argtypes = (
            *(c_void_p, c_int64, c_int64, c_int64, c_int64, c_void_p, c_int64),
            *(c_void_p, c_void_p),
        )
        self._sample_rows.restype = None
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

    def choose_rows(self, rows: Sequence[RowToChoose], masks: MaskApplier) -> list[TokenId | ValueError]:
        """Apply the masks and do as `choose` for every row; an error stands in place of a token. The rows are
        overwritten."""
        if not rows:
            return []
        jobs = bytearray(_ROW.size * len(rows))
        for number, (row, bits, params, draw) in enumerate(rows):
            bits_at = 0 if bits is None else bits.__array_interface__["data"][0]
            temperature = 0.0 if params.greedy else params.temperature
            _ROW.pack_into(
                jobs, _ROW.size * number, _address(row), bits_at,
                params.top_p, params.min_p, draw, params.top_k, temperature, 0,
            )  # fmt: skip
        others = masks.other_eos
        self._sample_rows(
            ctypes.addressof(c_char.from_buffer(jobs)), len(rows), len(rows[0].row), masks.num_described, masks.eos,
            others.ctypes.data, len(others), *self._memory,
        )  # fmt: skip
        tokens = memoryview(jobs).cast("q")[_ROW_WORDS - 1 :: _ROW_WORDS].tolist()
        return [TokenId(token) if token >= 0 else ValueError(_ERRORS[token]) for token in tokens]

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
    return ctypes.addressof(c_char.from_buffer(row.data))
