"""Oracles for grammars in Lark and GBNF: llguidance, and lark itself."""

import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, Literal

import llguidance

from tests.support.native_tool import NoAnswerError
from tests.support.tool_guest import ToolGuest


class Llguidance:
    """llguidance over single bytes. `grammar`: in Lark."""

    def __init__(self, grammar: str) -> None:
        self._grammar = llguidance.LLMatcher.grammar_from_lark(grammar)
        self._tokenizer: Any = llguidance.LLTokenizer("byte")
        matcher = llguidance.LLMatcher(self._tokenizer, self._grammar, log_level=0)
        self.problem: str = matcher.get_error()

    def verdict(self, text: str) -> tuple[bool, int]:
        """Return whether the text is complete, and how many of its bytes can begin a text."""
        content = list(text.encode())
        matcher = llguidance.LLMatcher(self._tokenizer, self._grammar, log_level=0)
        viable = matcher.validate_tokens(content)
        if viable < len(content):
            return False, viable
        return bool(matcher.consume_tokens(content) and matcher.is_accepting()), viable


def guest_verdicts(tool: ToolGuest, guest_text: str, texts: Sequence[str]) -> list[tuple[bool, int]]:
    """Return the same of the guest `grammar`. `guest_text`: in the guest's syntax."""
    answer: Any = tool.ask({"accepts": {"grammar": guest_text, "inputs": list(texts)}})
    assert "problem" not in answer, f"{answer['problem']}\n{guest_text}"
    return [(one["accepted"], one["at"]) for one in answer["answers"]]


class LarkEarley:
    """lark's Earley parser. `lexer`: dynamic, which may read shorter lexemes than the longest; or basic, which may
    not."""

    def __init__(self, grammar: str, lexer: Literal["dynamic", "basic"] = "dynamic") -> None:
        import lark

        self._error = lark.exceptions.LarkError
        self.problem = ""
        try:
            self._parser = lark.Lark(grammar, parser="earley", lexer=lexer)
        except (lark.exceptions.LarkError, OSError) as error:
            self.problem = str(error) or "refused"

    def accepts(self, text: str) -> bool:
        try:
            self._parser.parse(text)
        except self._error:
            return False
        return True


class XGrammar:
    """XGrammar over single bytes, in a process of its own: on some grammars it does not end. It is no dependency of the
    tests: a driver installs it for its run. Close after use."""

    def __init__(self, grammar: str, *, limit_s: float = 10.0) -> None:
        self._limit_s = limit_s
        self._connection, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("fork").Process(target=_serve_xgrammar, args=(grammar, theirs))
        self._process.start()
        theirs.close()
        try:
            self.problem: str = self._answer()
        except NoAnswerError as error:
            self.problem = str(error)

    def accepts(self, text: str) -> bool:
        """Raise NoAnswerError after the time limit; no further question is answered then."""
        self._connection.send(text)
        return bool(self._answer())

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()

    def _answer(self) -> Any:
        try:
            if self._connection.poll(self._limit_s):
                return self._connection.recv()
        except (EOFError, OSError) as error:
            raise NoAnswerError("the process ended") from error
        raise NoAnswerError(f"no answer within {self._limit_s:.0f} s")


def _serve_xgrammar(grammar: str, connection: Connection) -> None:
    import xgrammar

    vocabulary = [bytes([byte]) for byte in range(256)] + [b"</s>"]
    info = xgrammar.TokenizerInfo(vocabulary, xgrammar.VocabType.RAW, stop_token_ids=[256])
    try:
        compiled = xgrammar.GrammarCompiler(info, cache_enabled=False).compile_grammar(grammar)
    except RuntimeError as error:
        connection.send(str(error) or "refused")
        return
    connection.send("")
    while True:
        try:
            text = connection.recv()
        except EOFError:
            return
        matcher = xgrammar.GrammarMatcher(compiled)
        connection.send(bool(matcher.accept_string(text) and matcher.accept_token(256)))
