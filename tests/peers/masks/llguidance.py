"""llguidance: a lexer of derivatives and an Earley parser, in Rust."""

from typing import Any

from aici_controllers.mask_bench.cases import MaskCase
from aici_controllers.mask_bench.engine import CannotError
from aici_controllers.mask_bench.vocabulary import BenchVocabulary

NAME = "llguidance"
PACKAGE = "llguidance"
INSTALL = "pip install llguidance==1.9.1"


class Engine:
    name = NAME

    def __init__(self, vocabulary: BenchVocabulary) -> None:
        import llguidance

        self._library: Any = llguidance
        loaded = vocabulary.loaded
        self._tokenizer = llguidance.LLTokenizer(
            str(loaded.tokenizer_json), n_vocab=loaded.vocab_size, eos_token=loaded.eos_token
        )
        self._mask = bytearray(4 * ((loaded.vocab_size + 31) // 32))

    def start(self, case: MaskCase) -> "Session":
        matcher = self._library.LLMatcher(self._tokenizer, self._grammar(case), log_level=0)
        if matcher.is_error():
            raise CannotError(matcher.get_error())
        return Session(matcher, self._mask)

    def _grammar(self, case: MaskCase) -> str:
        make, notations = self._library.LLMatcher, case.notations
        if "schema" in notations:
            return str(make.grammar_from_json_schema(notations["schema"]))
        if "lark" in notations:
            return str(make.grammar_from_lark(notations["lark"]))
        if "regex" in notations:
            return str(make.grammar_from_regex(notations["regex"]))
        raise CannotError(f"llguidance supports none of {', '.join(notations)}")


class Session:
    def __init__(self, matcher: Any, mask: bytearray) -> None:
        import ctypes

        self._matcher = matcher
        self._mask = mask
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(mask))

    def mask(self) -> None:
        self._matcher.unsafe_compute_mask_ptr(self._address, len(self._mask))

    def consume(self, token: int) -> None:
        self._matcher.consume_token(token)

    def bits(self) -> bytes:
        return bytes(self._mask)

    def memory_bytes(self) -> int | None:
        return None
