"""outlines-core: a regular expression (or a schema converted to one) as a table of states and tokens, in Rust."""

import ctypes
from typing import Any

from aici_controllers.mask_bench.cases import MaskCase
from aici_controllers.mask_bench.engine import CannotError
from aici_controllers.mask_bench.vocabulary import BenchVocabulary

NAME = "outlines-core"
PACKAGE = "outlines_core"
INSTALL = "pip install outlines-core==0.2.14"


class Engine:
    name = NAME

    def __init__(self, vocabulary: BenchVocabulary) -> None:
        import outlines_core

        self._library: Any = outlines_core
        ids: dict[bytes, list[int]] = {}
        for token, raw in enumerate(vocabulary.token_bytes):
            if raw and token != vocabulary.eos_token:
                ids.setdefault(raw, []).append(token)
        self._vocabulary = outlines_core.Vocabulary(vocabulary.eos_token, ids)
        self._mask = bytearray(4 * ((vocabulary.loaded.vocab_size + 31) // 32))

    def start(self, case: MaskCase) -> "Session":
        try:
            index = self._library.Index(self._regex(case), self._vocabulary)
            return Session(self._library.Guide(index), self._mask)
        except (ValueError, TypeError, RuntimeError) as error:
            raise CannotError(str(error)) from error

    def _regex(self, case: MaskCase) -> str:
        if "schema" in case.notations:
            from outlines_core.json_schema import build_regex_from_schema

            return str(build_regex_from_schema(case.notations["schema"]))
        if "regex" in case.notations:
            return case.notations["regex"]
        raise CannotError(f"outlines-core supports none of {', '.join(case.notations)}")


class Session:
    def __init__(self, guide: Any, mask: bytearray) -> None:
        self._guide = guide
        self._mask = mask
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(mask))

    def mask(self) -> None:
        self._guide.write_mask_into(self._address, len(self._mask) // 4, 4)

    def consume(self, token: int) -> None:
        self._guide.advance(token, return_tokens=False)

    def bits(self) -> bytes:
        return bytes(self._mask)

    def memory_bytes(self) -> int | None:
        return None
