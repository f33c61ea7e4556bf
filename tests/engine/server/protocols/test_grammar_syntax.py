"""Every protocol reads grammars in Lark, GBNF and yacc's notation, and says how it read a wrong one."""

import pytest

from tests.support.openai_api import Api, Json

CHAT: Json = {"model": "it", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
TEXT: Json = {"prompt": "Hi", "max_tokens": 9}
REQUESTS = [("/v1/chat/completions", CHAT), ("/v1/completions", TEXT), ("/v1/messages", CHAT), ("/v1/check", {})]
GRAMMARS = ['root ::= "Hi" | "no"', 'start: "Hi" | "no"', '%%\ns : "Hi" | "no" ;']


@pytest.mark.parametrize(("path", "body"), REQUESTS)
@pytest.mark.parametrize("grammar", GRAMMARS)
def test_a_request_has_a_grammar_in_any_notation(path: str, body: Json, grammar: str) -> None:
    answer = Api().post(path, {**body, "guided_grammar": grammar})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(("path", "body"), REQUESTS)
def test_grammar_syntax_overrides_the_guess(path: str, body: Json) -> None:
    wrong = {**body, "guided_grammar": 'root ::= "a"', "grammar_syntax": "lark"}
    answer = Api().post(path, wrong)
    assert answer.status_code == 400
    assert "grammar:1:7: error: a rule of Lark has : here; ::= is GBNF's" in answer.text
    guessed = Api().post(path, {**body, "guided_grammar": 'start: "a" ;\nx: "b"'})
    assert guessed.status_code == 400
    assert "set grammar_syntax to y, lark or gbnf" in guessed.text
    alone = Api().post(path, {**body, "grammar_syntax": "lark"})
    assert alone.status_code == 400
    assert "grammar_syntax without a grammar" in alone.text
