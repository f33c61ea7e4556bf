"""The masks of the guest `grammar` on the vocabulary of the default model, against a plain walk byte by byte; its
verdicts against lark's."""

import random

import lark
import pytest

from aici_controllers.catalog import grammar_path, guest_path
from aici_controllers.mask_bench.vocabulary import BenchVocabulary, open_vocabulary
from tests.support.fake_host import FakeHost, GuestModule
from tests.support.guests import build_test_guest, shipped_guest
from tests.support.model import default_model_dir
from tests.support.scale import scaled
from tests.support.tool_guest import ToolGuest

_TEXTS = {
    "json": '{"a b": [1, -2.5e3, true, null, "\\u00e9 é\\n"],\n  "": {}}',
    "arithmetic": "1 + 2.5 * (3 - 4)",
    "c": (
        "#include <stdio.h>\n/* a * b */ static const char *s = \"x\\n\" 'y';\n"
        "int main(void) {\n  for (i = 0; i < 10u; i++) a[i] >>= 0x1F; // end\n  return x->y ? 1 : sizeof(int);\n}\n"
    ).replace(" 'y'", ""),
    "toml": 'a.b = 1\n[table]\nd = 1979-05-27\n"k" = ["x", {y = 1.5}]\n',
    "counts": 'if name = {"id": 17, "title": "é title, \\"A\\"", "tags": ["", "in stock"]} then \'a word\' \'x\' ',
}
_COUNTS = rb"""
%start statement
%%
statement : "if" NAME "=" BODY "then" words ;
words : QUOTED | words QUOTED ;
NAME : "/[a-z]{1,12}/" ;
QUOTED : "/'[^'\n]{0,14}'/" ;
BODY : %json {
  "type": "object",
  "properties": {
    "id": {"type": "integer"},
    "title": {"type": "string", "minLength": 3, "maxLength": 500},
    "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}}
  },
  "additionalProperties": false
} ;
SKIP : "/[ \n]+/" ;
"""
_LARK = {
    "json": r"""
        ?start: value
        value: "{" (pair ("," pair)*)? "}" | "[" (value ("," value)*)? "]" | STRING | NUMBER | "true" | "false" | "null"
        pair: STRING ":" value
        STRING: /"([^"\\\x00-\x1f]|\\(["\\\/bfnrt]|u[0-9a-fA-F]{4}))*"/
        NUMBER: /-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/
        %ignore /[ \t\n\r]+/
    """,
    "arithmetic": r"""
        ?start: e
        e: t | e ("+" | "-") t
        t: u | t ("*" | "/" | "%") u
        u: ("+" | "-") u | p
        p: a | a "^" u
        a: NUMBER | NAME | "(" e ")" | NAME "(" (e ("," e)*)? ")"
        NUMBER: /([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?/
        NAME: /[A-Za-z_][A-Za-z0-9_]*/
        %ignore /[ \t\n\r]+/
    """,
}


@pytest.fixture(scope="module")
def module() -> GuestModule:
    return shipped_guest("grammar")


@pytest.fixture(scope="module")
def vocabulary() -> BenchVocabulary:
    return open_vocabulary("default", default_model_dir())


@pytest.mark.parametrize("name", _TEXTS)
@pytest.mark.parametrize("option", ["", "%option ambiguous\n"], ids=["lr", "general"])
def test_masks_are_those_of_a_plain_walk(
    module: GuestModule, vocabulary: BenchVocabulary, option: str, name: str
) -> None:
    plain = GuestModule(build_test_guest("grammar_walk"))
    grammar = option.encode() + (_COUNTS if name == "counts" else grammar_path(name).read_bytes())
    text = _TEXTS[name].partition("\n")[2] if option and name == "c" else _TEXTS[name]  # no newline before the text
    hosts = [
        FakeHost(
            which,
            vocabulary.token_bytes,
            eos=vocabulary.eos_token,
            arg=grammar,
            trie=vocabulary.loaded.tries["v1"],
        )
        for which in (module, plain)
    ]
    for token in vocabulary.encode(text):
        for host in hosts:
            assert host.mid_process() == {"SampleWithBias": {}}
        assert hosts[0].mask == hosts[1].mask
        assert token in hosts[0].allowed()
        for host in hosts:
            host.post_process([token])
    hosts[0].mid_process()
    assert vocabulary.eos_token in hosts[0].allowed()


@pytest.mark.parametrize("name", _LARK)
def test_verdicts_are_those_of_lark(module: GuestModule, name: str) -> None:
    assert module  # built
    parser = lark.Lark(_LARK[name], parser="lalr", lexer="basic")
    luck = random.Random(3)
    texts = [_changed(_TEXTS[name], luck) for _ in range(scaled(400))]
    question = {"accepts": {"grammar": grammar_path(name).read_text(), "inputs": texts}}
    answers = [answer["accepted"] for answer in ToolGuest(guest_path("grammar")).ask(question)["answers"]]
    expected = [_parses(parser, text) for text in texts]
    assert len(set(expected)) == 2
    assert dict(zip(texts, answers, strict=True)) == dict(zip(texts, expected, strict=True))


def _parses(parser: lark.Lark, text: str) -> bool:
    try:
        parser.parse(text)
    except lark.exceptions.LarkError:
        return False
    return True


def _changed(text: str, luck: random.Random) -> str:
    """Remove one to three characters, or take them from elsewhere in the text."""
    for _ in range(luck.randint(1, 3)):
        at = luck.randrange(len(text))
        text = text[:at] + luck.choice(["", luck.choice(text), text[at] + luck.choice(text)]) + text[at + 1 :]
    return text
