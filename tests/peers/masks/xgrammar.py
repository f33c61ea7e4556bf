"""xgrammar: a pushdown automaton over bytes with precomputed masks, in C++. One thread, no cache."""

from typing import Any

from aici_controllers.mask_bench.cases import MaskCase
from aici_controllers.mask_bench.engine import CannotError
from aici_controllers.mask_bench.vocabulary import BenchVocabulary

NAME = "xgrammar"
PACKAGE = "xgrammar"
# --no-deps: xgrammar declares torch, transformers and triton; any torch works.
INSTALL = "pip install --no-deps apache-tvm-ffi xgrammar==0.2.8"


class Engine:
    name = NAME

    def __init__(self, vocabulary: BenchVocabulary) -> None:
        import xgrammar

        self._library: Any = xgrammar
        info = xgrammar.TokenizerInfo(
            vocabulary.token_bytes,
            vocab_type=xgrammar.VocabType.RAW,
            vocab_size=vocabulary.loaded.vocab_size,
            stop_token_ids=[vocabulary.eos_token],
        )
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self._mask = xgrammar.allocate_token_bitmask(1, vocabulary.loaded.vocab_size)

    def start(self, case: MaskCase) -> "Session":
        try:
            return Session(self._library.GrammarMatcher(self._compile(case)), self._mask)
        except (RuntimeError, ValueError) as error:
            raise CannotError(str(error)) from error

    def _compile(self, case: MaskCase) -> Any:
        notations = case.notations
        if "schema" in notations:
            # Not strict: JSON Schema allows properties that the schema does not name.
            return self._compiler.compile_json_schema(notations["schema"], any_whitespace=True, strict_mode=False)
        if notations.get("builtin") == "json":
            return self._compiler.compile_builtin_json_grammar()
        if "gbnf" in notations:
            return self._compiler.compile_grammar(notations["gbnf"])
        if "regex" in notations:
            return self._compiler.compile_regex(notations["regex"])
        raise CannotError(f"xgrammar supports none of {', '.join(notations)}")


class Session:
    def __init__(self, matcher: Any, mask: Any) -> None:
        self._matcher = matcher
        self._mask = mask

    def mask(self) -> None:
        # False: every token is allowed, and the tensor was not written.
        if not self._matcher.fill_next_token_bitmask(self._mask):
            self._mask.fill_(-1)

    def consume(self, token: int) -> None:
        self._matcher.accept_token(token)

    def bits(self) -> bytes:
        return bytes(self._mask.numpy().tobytes())

    def memory_bytes(self) -> int | None:
        return None
