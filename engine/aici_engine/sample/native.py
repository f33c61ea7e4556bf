"""Masks and the pipeline in C: the same tokens as `masks` and `pipeline` give, in a tenth of the time."""

import ctypes
from ctypes import c_double, c_float, c_int64, c_uint64, c_void_p

import numpy as np
import numpy.typing as npt

from aici_engine.config import SamplingParams
from aici_engine.sample.masks import Bits, Logits
from aici_engine.sample.pipeline import NOT_FINITE, NOTHING_ALLOWED
from aici_runtime.ids import TokenId

_SPARE = 32
_ERRORS = {-1: NOTHING_ALLOWED, -2: NOT_FINITE}


class NativeSampling:
    """For rows of `num_logits`, one at a time: its memory is used again and again."""

    def __init__(self, library: ctypes.CDLL, num_logits: int) -> None:
        # Calls this short had better not give up the GIL: to have it again may take milliseconds.
        held = ctypes.PyDLL(library._name)
        self._choose, self._mask = held.aici_choose, held.aici_mask
        self._choose.argtypes = (
            *(c_void_p, c_int64, c_float, c_int64, c_double, c_double, c_uint64),
            *(c_void_p, c_void_p),
        )
        self._choose.restype = c_int64
        self._mask.argtypes, self._mask.restype = (c_void_p, c_void_p, c_int64), None
        self._ids = np.empty(2 * num_logits + _SPARE, np.int32)
        self._weights = np.empty(2 * num_logits + _SPARE, np.float32)
        self._memory = _address(self._ids), _address(self._weights)

    def mask(self, row: Logits, bits: Bits, num_tokens: int) -> None:
        """As `masks.TableClose`."""
        self._mask(_address(row), _address(bits), num_tokens)

    def choose(self, row: Logits, params: SamplingParams, draw: int) -> TokenId:
        """As `pipeline.choose`."""
        temperature = 0.0 if params.greedy else params.temperature
        token = self._choose(
            _address(row), len(row), temperature, params.top_k, params.top_p, params.min_p, draw, *self._memory
        )
        if token < 0:
            raise ValueError(_ERRORS[token])
        return TokenId(token)


def _address(array: npt.NDArray[np.generic]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
