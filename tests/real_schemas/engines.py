"""The engines that are compared. Each says which texts a schema allows, or declines the schema."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, Unpack

from aici_base.errors import AiciError
from aici_controllers.schema_check import (
    SchemaKeywords,
    SchemaOptions,
    SchemaReport,
    check_schema,
    parse_report,
    schema_argument,
    with_texts,
)
from tests.support.native_tool import NativeTool, NoAnswerError


class DeclinedError(Exception):
    """The engine does not take the schema. The message is the engine's."""


class Engine(Protocol):
    def accepted(self, schema: Any, texts: Sequence[str]) -> list[bool]:
        """Tell of each text whether the text is allowed. Raise DeclinedError if the engine does not take the schema."""
        ...


class Ours:
    """The guest `json_schema`, through the check that the server makes, or `program`: its tool, built natively."""

    def __init__(self, program: str | None, **options: Unpack[SchemaKeywords]) -> None:
        self._options = SchemaOptions(**options)
        self._tool = NativeTool("json_schema", limit_s=3600.0, program=program) if program else None

    def accepted(self, schema: Any, texts: Sequence[str]) -> list[bool]:
        try:
            report = self._report(schema, texts)
        except (AiciError, NoAnswerError) as error:
            raise DeclinedError(str(error)) from error
        if report.problems:
            problem = report.problems[0]
            raise DeclinedError(f"{problem.keyword}: {problem.message}")
        return [stopped is None for stopped in report.texts]

    def _report(self, schema: Any, texts: Sequence[str]) -> SchemaReport:
        if self._tool is None:
            return check_schema(schema, texts, self._options)
        return parse_report(self._tool.ask_raw(with_texts(schema_argument(schema, self._options), texts)))


class LlGuidance:
    def __init__(self) -> None:
        import llguidance

        self._make: Any = llguidance.LLMatcher
        self._tokenizer: Any = llguidance.LLTokenizer("byte")

    def accepted(self, schema: Any, texts: Sequence[str]) -> list[bool]:
        try:
            grammar = self._make.grammar_from_json_schema(json.dumps(schema))
        except ValueError as error:
            raise DeclinedError(str(error)) from error
        matcher = self._make(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise DeclinedError(matcher.get_error())
        return [self._takes(matcher.deep_copy(), list(text.encode())) for text in texts]

    def _takes(self, matcher: Any, tokens: list[int]) -> bool:
        taken = matcher.try_consume_tokens(tokens)
        if matcher.is_error():
            raise DeclinedError(matcher.get_error())
        return taken == len(tokens) and bool(matcher.is_accepting())


class XGrammar:
    """XGrammar, with objects open as the specification has them."""

    def __init__(self) -> None:
        import xgrammar

        self._library: Any = xgrammar
        vocabulary = [bytes([byte]) for byte in range(256)] + [b"</s>"]
        info = xgrammar.TokenizerInfo(vocabulary, vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[256])
        self._compiler: Any = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def accepted(self, schema: Any, texts: Sequence[str]) -> list[bool]:
        try:
            compiled = self._compiler.compile_json_schema(json.dumps(schema), any_whitespace=True, strict_mode=False)
        except (RuntimeError, ValueError) as error:
            raise DeclinedError(str(error)) from error
        answers = []
        for text in texts:
            matcher = self._library.GrammarMatcher(compiled)
            answers.append(bool(matcher.accept_string(text) and matcher.accept_token(256)))
        return answers


ENGINES: Final[Mapping[str, Callable[[str | None], Engine]]] = {
    "ours": Ours,
    "ours-open": lambda program: Ours(program, objects="open", property_order="any"),
    "llguidance": lambda _: LlGuidance(),
    "xgrammar": lambda _: XGrammar(),
}
"""Made with the program of the guest's tool, or None."""
