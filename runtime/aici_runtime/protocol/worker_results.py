"""Checks of the results that workers send. A worker with native code in it may send anything; the stepper joins the
results of all sequences as text, so a result that is more than a result could speak for another sequence."""

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from aici_runtime.protocol.guest_sequences import failed
from aici_runtime.turn_message import NOT_USUAL

_FIELDS = {"error", "result", "storage", "logs", "micros"}
NO_ANSWER = "Worker: the answer of the worker cannot be read"
UNREADABLE = (struct.error, ValueError, IndexError)
"""What reading an answer may raise."""

_NO_RESULT = failed(NO_ANSWER)


_FORM = rb'\{"error":"","result":%b,"storage":\[\],"logs":"","micros":(%b)\}'
_HEAD = rb"\x01\x00\x01\x00...."
"""A reply with a single mask, already written to the mask row (`worker_replies`)."""
_USUAL_MID = _FORM % (b"null", b"0|[1-9][0-9]{0,8}")

usual_result = re.compile(_USUAL_MID).fullmatch
"""Match a result of mid if the mask alone decides. The group holds the microseconds of the guest."""
usual_mid_reply = re.compile(_HEAD + _USUAL_MID, re.DOTALL).fullmatch
"""Match a worker's reply to `mid` with such a result."""
usual_turn_reply = re.compile(rb"\x00{4}" + _HEAD + _USUAL_MID, re.DOTALL).fullmatch
"""Match a worker's reply to `turn` with such a result, if post and pre said nothing but to go on."""


def _usual(value: bytes) -> Callable[[bytes], object]:
    """Return a check for what nearly every result is, in a quarter of the time of reading it: in the words of
    `guests.driver`, null or what the expression `value` matches, and nothing else."""
    return re.compile(_FORM % (b"(?:null|%b)" % value, b"0|[1-9][0-9]{0,9}")).fullmatch


_is_usual_post = _usual(rb'\{"stop":false\}')
_is_usual_pre = _usual(rb'\{"suspend":false,"num_forks":1,"ff_tokens":\[\]\}')
_is_usual_mid = _usual(rb"null")
_MASK = rb'\{"sample_mask":(?:0|-?[1-9][0-9]{0,8}),"temperature":null,"splices":\[\]\}'
_is_usual_step = _usual(rb'\{"branches":\[%b\]\}' % _MASK)


class WorkerResults:
    """Return a result unchanged if it is one, else a failure of the sequence. `vocab_size`: tokens are smaller."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size

    def post(self, result: bytes) -> bytes:
        return result if _is_usual_post(result) else _checked(result, lambda value: type(value["stop"]) is bool)

    def pre(self, result: bytes) -> bytes:
        return result if _is_usual_pre(result) else _checked(result, self._is_pre)

    def mid(self, result: bytes) -> bytes:
        return result if _is_usual_mid(result) else _checked(result, self._is_splice)

    def step(self, result: bytes) -> bytes:
        """A result of protocol v2."""
        return result if _is_usual_step(result) else _checked(result, lambda value: type(value["branches"]) is list)

    def _is_pre(self, value: dict[str, Any]) -> bool:
        return type(value["suspend"]) is bool and _is_count(value["num_forks"]) and self._are_tokens(value["ff_tokens"])

    def _is_splice(self, value: dict[str, Any]) -> bool:
        return _is_count(value["backtrack"]) and self._are_tokens(value["ff_tokens"])

    def _are_tokens(self, value: object) -> bool:
        return type(value) is list and all(type(token) is int and 0 <= token < self._vocab_size for token in value)


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _checked(result: bytes, is_value: Callable[[dict[str, Any]], bool]) -> bytes:
    try:
        read = orjson.loads(result)
        value = read["result"]
        is_result = (
            read.keys() == _FIELDS
            and type(read["error"]) is str
            and type(read["logs"]) is str
            and type(read["micros"]) is int
            and type(read["storage"]) is list
            and (value is None or (type(value) is dict and is_value(value)))
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        is_result = False
    return result if is_result else _NO_RESULT


def split_usual(results: Sequence[bytes | None]) -> tuple[list[int], list[bytes | None]]:
    """Return the microseconds of usual results, NOT_USUAL in place of others, and the other results."""
    micros = [NOT_USUAL] * len(results)
    others = list(results)
    for row, result in enumerate(results):
        if result is not None and (found := usual_result(result)):
            micros[row], others[row] = int(found[1]), None
    return micros, others
