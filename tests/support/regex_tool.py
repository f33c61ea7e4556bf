"""Ask the guest `regex` which texts match: the guest's own parser and automaton, without a vocabulary and masks."""

import json
from dataclasses import dataclass

import wasmtime

from tests.support.fake_host import GuestModule


@dataclass(frozen=True, slots=True)
class Answer:
    """`viable`: the number of leading bytes of the text with which some matching text begins."""

    matches: bool
    viable: int


class RefusedError(Exception):
    """The pattern was refused."""


class RegexTool:
    """One instance for every question; the module is compiled once."""

    def __init__(self, guest: GuestModule) -> None:
        self._guest = guest
        self._linker = wasmtime.Linker(guest.engine)
        self._linker.define_unknown_imports_as_traps(guest.module)

    def ask(self, pattern: str, text: str = "", *, search: bool = False, json_string: bool = False) -> Answer:
        question = {"pattern": pattern, "text": text, "search": search, "json_string": json_string}
        raw = json.dumps(question, ensure_ascii=False).encode()
        store = wasmtime.Store(self._guest.engine)
        store.set_epoch_deadline(1)
        store.set_limits(memory_size=64 << 20)
        exports = self._linker.instantiate(store, self._guest.module).exports(store)
        memory, alloc, ask = exports["memory"], exports["aici_tool_alloc"], exports["aici_tool_ask"]
        assert isinstance(memory, wasmtime.Memory)
        assert isinstance(alloc, wasmtime.Func)
        assert isinstance(ask, wasmtime.Func)
        address = alloc(store, len(raw))
        memory.write(store, raw, address)
        at = ask(store, address, len(raw))
        length = int.from_bytes(memory.read(store, at, at + 4), "little")
        answer = json.loads(bytes(memory.read(store, at + 4, at + 4 + length)))
        if "message" in answer:
            raise RefusedError(f"{answer['position']}: {answer['message']}")
        return Answer(answer["matches"], answer["viable"])
