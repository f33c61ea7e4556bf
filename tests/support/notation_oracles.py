"""Oracles for grammars in Lark and GBNF: llguidance, and lark itself."""

from collections.abc import Sequence
from typing import Any

import llguidance

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
    """lark's Earley parser, whose lexer is dynamic: it may read shorter lexemes than the longest."""

    def __init__(self, grammar: str) -> None:
        import lark

        self._error = lark.exceptions.LarkError
        self.problem = ""
        try:
            self._parser = lark.Lark(grammar, parser="earley")
        except (lark.exceptions.LarkError, OSError) as error:
            self.problem = str(error) or "refused"

    def accepts(self, text: str) -> bool:
        try:
            self._parser.parse(text)
        except self._error:
            return False
        return True


class XGrammar:
    """XGrammar over single bytes. It is no dependency of the tests: a driver installs it for its run."""

    def __init__(self, grammar: str) -> None:
        import xgrammar

        self.problem = ""
        vocabulary = [bytes([byte]) for byte in range(256)] + [b"</s>"]
        info = xgrammar.TokenizerInfo(vocabulary, xgrammar.VocabType.RAW, stop_token_ids=[256])
        try:
            compiled = xgrammar.GrammarCompiler(info, cache_enabled=False).compile_grammar(grammar)
        except RuntimeError as error:
            self.problem = str(error)
            return
        self._new: Any = lambda: xgrammar.GrammarMatcher(compiled)

    def accepts(self, text: str) -> bool:
        matcher = self._new()
        return bool(matcher.accept_string(text) and matcher.accept_token(256))
