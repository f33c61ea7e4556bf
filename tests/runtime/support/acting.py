"""A guest of ABI v1 that does what the test orders: a word per callback in the guest's memory names the next act.

An order is obeyed once; without an order, the guest goes on as most guests do at most tokens.
"""

from enum import IntEnum
from functools import cache

from tests.runtime.support import wat

ORDERS_AT = {"post": 0x10000, "pre": 0x10010, "mid": 0x10020}
"""Where the orders are; 0 means the usual answer."""

OUT_OF_RANGE = 0x7FFFFFF0


class Act(IntEnum):
    """Acts of a callback, each followed by the usual answer unless the name says otherwise."""

    USUAL = 0
    STRANGE_ANSWER = 1
    NO_ANSWER = 2
    TWO_ANSWERS = 3
    HUGE_ANSWER = 4
    ANSWER_OUT_OF_RANGE = 5
    LOG = 6
    LOG_ARGUMENT = 7
    LOG_SEQ_ID = 8
    TRAP = 9
    STOP = 10
    NO_MASK = 11
    TWO_MASKS = 12
    MASK_OUT_OF_RANGE = 13
    READ_OUT_OF_RANGE = 14
    RANDOM = 15
    INVALID_JSON = 16
    WHITESPACE = 17
    STORE = 18


_STRANGE = {
    "post": '{"stop":true}',
    "pre": '{"num_forks":1,"suspend":false,"ff_tokens":[3,1]}',
    "mid": '{"Splice":{"backtrack":1,"ff_tokens":[2]}}',
}
_USUAL = {"post": wat.NO_STOP, "pre": wat.PRE_GO, "mid": wat.SAMPLE}


@cache
def module() -> bytes:
    """Return the module, with a mask of every token whose number is not a multiple of three."""
    made = wat.Module()
    bodies = {name: _body(made, name) for name in ORDERS_AT}
    return made.build(**bodies, extra=_LOG_SEQ_ID)


_LOG_SEQ_ID = """
  (func $log_seq_id (i32.store (i32.const 0x10) (call $self_seq_id)) (call $log (i32.const 0x10) (i32.const 4)))"""


def _body(made: wat.Module, name: str) -> str:
    usual = made.answer(_USUAL[name])
    mask = _mask(0xDB6DB6DB) if name == "mid" else ""
    at = ORDERS_AT[name]
    bias = "(call $bias (i32.const 0x400))"
    acts = {
        Act.STRANGE_ANSWER: made.answer(_STRANGE[name]) + "(return)",
        Act.NO_ANSWER: "(return)",
        Act.TWO_ANSWERS: made.answer(_STRANGE[name]),
        Act.HUGE_ANSWER: f"(call $return (i32.const 0) (i32.const {1 << 20 | 1}))",
        Act.ANSWER_OUT_OF_RANGE: f"(call $return (i32.const {OUT_OF_RANGE}) (i32.const 64))",
        Act.LOG: made.log(f"in {name}\n"),
        Act.LOG_ARGUMENT: wat.ECHO,
        Act.LOG_SEQ_ID: "(call $log_seq_id)",
        Act.TRAP: wat.TRAP,
        Act.STOP: "(call $stop)",
        Act.NO_MASK: usual + "(return)",
        Act.TWO_MASKS: _mask(0x11111111) + bias,
        Act.MASK_OUT_OF_RANGE: f"(call $bias (i32.const {OUT_OF_RANGE}))",
        Act.READ_OUT_OF_RANGE: (
            f"(drop (call $read_blob (call $process_arg) (i32.const {OUT_OF_RANGE}) (i32.const 64)))"
        ),
        Act.RANDOM: "(drop (call $random_get (i32.const 0x20) (i32.const 8)))",
        Act.INVALID_JSON: made.answer("{") + "(return)",
        Act.WHITESPACE: made.answer(_USUAL[name].replace(":", ": ")) + (mask + bias if mask else "") + "(return)",
        Act.STORE: made.store('{"WriteVar":{"name":"x","value":"01","op":"Set","when_version_is":null}}'),
    }
    return (
        f"(local $act i32) (local.set $act (i32.load (i32.const {at}))) (i32.store (i32.const {at}) (i32.const 0))"
        # Every callback reads its argument, as guests do; the test compares the memories.
        "(drop (call $read_blob (call $process_arg) (i32.const 0x20000) (i32.const 0x1000)))"
        + "".join(f"(if (i32.eq (local.get $act) (i32.const {act})) (then {body}))" for act, body in acts.items())
        + (mask + bias if mask else "")
        + usual
    )


def _mask(word: int) -> str:
    """Write a mask of 128 tokens."""
    return "".join(f"(i32.store (i32.const {0x400 + 4 * k}) (i32.const {word}))" for k in range(4))
