"""Structural tags: which texts they allow, and what is wrong with a document. `tests/grammars/structural_tags.py`
compares random documents with XGrammar."""

import json
from typing import Any

import pytest

from aici_controllers.constraints import SPACED, structural_tag
from aici_controllers.schema_check import SchemaOptions
from aici_controllers.structural_tag_check import accepts_texts, check_structural_tag
from tests.support.fake_host import FakeHost
from tests.support.guests import shipped_guest

Json = dict[str, Any]

CITY: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def tag(begin: str, content: Json, end: Any) -> Json:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def text(value: str) -> Json:
    return {"type": "const_string", "value": value}


def triggered(*tags: Json, triggers: tuple[str, ...] = ("<f=",), **more: Any) -> Json:
    return {"type": "triggered_tags", "triggers": list(triggers), "tags": list(tags), **more}


GET = tag("<f=get>", {"type": "json_schema", "json_schema": CITY}, "</f>")
TIME = tag("<f=time>", {"type": "regex", "pattern": "^[0-9]{2}$"}, ["</f>", ";"])
ANY: Json = {"type": "any_text"}
CALL = '<f=get>{"city": "Bern"}</f>'

TEXTS: dict[str, tuple[Json, list[str], list[str]]] = {
    "free text with tags": (
        triggered(GET, TIME),
        ["", "Hi", f"Hi {CALL} and <f=time>07;!", f"{CALL}{CALL}<f", "<<f=time>12</f>", "é\n<f <f"],
        ["<f=", "Hi <f=other>", "<f=get>{}</f>", "<f=time>7;", f"{CALL}<f=x"],
    ),
    "a tag first": (triggered(GET, at_least_one=True), [CALL, f"{CALL} x {CALL}"], ["", f" {CALL}", "Hi"]),
    "one tag, then the end": (triggered(TIME, stop_after_first=True), ["Hi", "Hi <f=time>12;"], ["<f=time>12; Hi"]),
    "one tag": (
        triggered(TIME, at_least_one=True, stop_after_first=True),
        ["<f=time>12;"],
        ["", "<f=time>12;<f=time>12;"],
    ),
    "excluded text": (triggered(TIME, excludes=["no", ";"]), ["n o", "n<f=time>12;o"], ["no", "a;", "<f=time>12;;"]),
    "the first trigger that is complete": (
        triggered(tag("aa", text("!"), ""), triggers=("aa",)),
        ["baa!a", "a", "aa!aa!"],
        ["aaa!", "baaa!"],
    ),
    "triggers that do not nest": (
        triggered(tag("<a>", ANY, "</a>"), tag("<b>", text("1"), "</b>"), triggers=("<a>", "<b>")),
        ["<a>any <b> text</a>", "x<b>1</b><a></a>"],
        ["<a>", "<b>2</b>", "<a></a"],
    ),
    "free text inside of a tag": (
        tag("<p>", triggered(TIME), "</p>"),
        ["<p></p>", "<p>Hi <f=time>12;</p>", "<p>< </ <f</p>"],
        ["<p></p>x", "<p>", "<p><f=</p>"],
    ),
    "thinking, then an answer": (
        {"type": "sequence", "elements": [tag("<think>", ANY, "</think>"), GET["content"]]},
        ['<think>{"a" </thin</think>{"city": ""}'],
        ['<think></think></think>{"city": ""}', '{"city": ""}'],
    ),
    "tags in a list": (
        {"type": "tags_with_separator", "tags": [TIME, tag("x", text(""), "")], "separator": ","},
        ["", "x", "<f=time>12;,x,x"],
        ["x,", ",x", "xx"],
    ),
    "a list with an item": (
        {"type": "tags_with_separator", "tags": [TIME], "separator": "", "at_least_one": True},
        ["<f=time>12;", "<f=time>12;<f=time>12;"],
        [""],
    ),
    "at most an item": (
        {"type": "tags_with_separator", "tags": [TIME], "separator": ",", "stop_after_first": True},
        ["", "<f=time>12;"],
        ["<f=time>12;,<f=time>12;"],
    ),
    "a grammar": (
        {"type": "grammar", "grammar": 'root ::= item ("," item)*\nitem ::= [a-z]+ | "(" root ")"'},
        ["a,(b,(c))"],
        ["a,(b", ""],
    ),
    "repetitions": (
        {
            "type": "sequence",
            "elements": [
                {"type": "repeat", "min": 1, "max": 2, "content": text("a")},
                {"type": "star", "content": text("b")},
                {"type": "optional", "content": text("c")},
                {"type": "plus", "content": {"type": "or", "elements": [text("d"), text("e")]}},
                {"type": "repeat", "min": 0, "max": -1, "content": {"type": "grammar", "grammar": 'root ::= "f"'}},
            ],
        },
        ["ad", "aabbcded", "aeff"],
        ["d", "aaad", "a", "accd"],
    ),
    "patterns in free text": (
        {
            "type": "dispatch",
            "rules": [["@", {"type": "regex", "pattern": "[a-z]+"}], ["#", text("1")]],
            "excludes": ["!"],
        },
        ["Hi @joe and #1", ""],
        ["@", "#2", "Hi!"],
    ),
    "a pattern once": (
        {"type": "dispatch", "rules": [["#", text("1")]], "loop": False},
        ["a#1", "a"],
        ["#1#1", "#1a"],
    ),
    "bounded text": ({"type": "any_text", "max_chars": 3, "excludes": ["b"]}, ["", "äöü"], ["aaaa", "ab"]),
    "quotes in a regex": ({"type": "regex", "pattern": '["\'\\"\n]/\\\\"'}, ['"/\\"', '\n/\\"'], ["\\"]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name: str) -> None:
    form, good, bad = TEXTS[name]
    report = check_structural_tag(json.dumps({"type": "structural_tag", "format": form}))
    assert report.problems == ()
    verdicts = accepts_texts(report, [*good, *bad])
    assert [one for one, verdict in zip([*good, *bad], verdicts, strict=True) if verdict[0]] == good


def test_the_older_form() -> None:
    structures = [{"begin": "<f=get>", "schema": CITY, "end": "</f>"}]
    older = {"type": "structural_tag", "structures": structures, "triggers": ["<f="]}
    as_text = {"structures": [{**structures[0], "schema": json.dumps(CITY)}], "triggers": ["<f="]}
    newer = {"format": triggered(GET)}
    first, second, third = (check_structural_tag(json.dumps(each)) for each in (older, as_text, newer))
    assert first.problems == ()
    assert first.guest_text == second.guest_text == third.guest_text


def test_options_of_schemas() -> None:
    def verdict(one: str, options: SchemaOptions, **more: bool) -> bool:
        document = {"format": {"type": "json_schema", "json_schema": CITY, **more}}
        return accepts_texts(check_structural_tag(json.dumps(document), options), [one])[0][0]

    two = '{"n": 1, "city": "a"}'
    assert not verdict(two, SchemaOptions(objects="open"))
    assert verdict(two, SchemaOptions(objects="open", property_order="any"))
    assert verdict(two, SchemaOptions(objects="open"), any_order=True)
    assert verdict('{"city":"a"}', SchemaOptions())
    assert not verdict('{"city":"a"}', SchemaOptions(whitespace="spaced"))


DEEP: Json = text("x")
for _ in range(60):
    DEEP = {"type": "star", "content": DEEP}

WRONG: list[tuple[object, str]] = [
    ([], "#: an object is expected"),
    ({}, "#: format is missing"),
    ({"type": "tag"}, "#/type: the document is"),
    (
        {"format": {"type": "triggerd_tags"}},
        "#/format/type: format 'triggerd_tags' is not known: did you mean triggered_tags?",
    ),
    ({"format": {**ANY, "exclude": []}}, "#/format: the key 'exclude' is not known: did you mean excludes?"),
    ({"format": {**ANY, "excludes": [""]}}, "#/format/excludes: an empty string"),
    ({"format": {**ANY, "max_tokens": 5}}, "#/format/max_tokens: max_tokens is not supported"),
    ({"format": {"type": "token", "token": 5}}, "#/format/type: token speaks of tokens"),
    ({"format": tag("a", ANY, {"type": "token", "token": 5})}, "#/format/end: a token is not supported"),
    ({"format": {"type": "qwen_xml_parameter", "json_schema": {}}}, "parameters in XML are not supported"),
    ({"format": {"type": "json_schema", "json_schema": {}, "style": "glm_xml"}}, "#/format/style: only the style json"),
    ({"format": {"type": "json_schema", "json_schema": {"type": "strin"}}}, "#/format/json_schema/type: must be null"),
    ({"format": {"type": "json_schema", "json_schema": False}}, "#/format/json_schema: no value satisfies"),
    ({"format": {"type": "regex", "pattern": "(a"}}, "#/format/pattern: in the regex /(a/: missing ')'"),
    ({"format": {"type": "regex", "pattern": ""}}, "#/format/pattern: the pattern is empty"),
    ({"format": {"type": "grammar", "grammar": "start: x"}}, "#/format/grammar: line 1, column 6: expected ::="),
    ({"format": {"type": "grammar", "grammar": 'root ::= "a" root'}}, "#/format/grammar: line 1, column 1: the rule"),
    ({"format": {"type": "repeat", "min": 2, "max": 1, "content": ANY}}, "#/format/max: max is smaller"),
    ({"format": {"type": "or", "elements": []}}, "#/format/elements: the list is empty"),
    ({"format": triggered(tag("f", ANY, "e"))}, "#/format/triggers: no trigger is the beginning of the tag 'f'"),
    ({"format": triggered(TIME, triggers=("<f", "<f="))}, "#/format/triggers: 2 triggers are the beginning"),
    ({"format": triggered(TIME, triggers=("<f=", "a"))}, "#/format/triggers: no tag begins with the trigger 'a'"),
    (
        {"structures": [{"begin": "<f=", "schema": "{", "end": ""}], "triggers": ["<"]},
        "#/structures/0/schema: this string",
    ),
    ({"format": DEEP}, "formats are nested deeper than 50"),
]


@pytest.mark.parametrize(("document", "said"), WRONG, ids=[said for _, said in WRONG])
def test_a_wrong_document_is_refused_with_its_place(document: object, said: str) -> None:
    problems = check_structural_tag(json.dumps(document)).problems
    assert said in problems[0].show()


@pytest.mark.parametrize("document", ["", "{", '{"format": ', "[" * 100_000])
def test_no_json(document: str) -> None:
    [problem] = check_structural_tag(document).problems
    assert problem.message.startswith(("not JSON", "the document is nested"))


def test_what_is_not_enforced_is_told() -> None:
    document = {"format": triggered({**GET, "content": {"type": "json_schema", "json_schema": {**CITY, "colour": 1}}})}
    [warning] = structural_tag(json.dumps(document)).warnings
    assert warning == "not enforced: #/format/tags/0/content/json_schema/colour: unknown keyword"
    hidden = triggered(tag("<a", ANY, ";"), tag("b<a>", ANY, ";"), triggers=("<a", "b<a>"))
    [warning] = structural_tag(json.dumps({"format": hidden})).warnings
    assert "the trigger 'b<a>' never comes: the trigger '<a' in it comes first" in warning


def test_masks_allow_what_can_follow() -> None:
    """Every token against its text, walked byte by byte; the end of the text in free text only."""
    texts = [
        "<f",
        "<f=",
        "=g",
        "get>",
        ">{",
        '{"city',
        '": "',
        '"}',
        "</",
        "</f",
        "f> a",
        "</f><f=",
        '"}</f>. <',
        " I",
        "e</f>",
    ]
    tokens = [bytes([byte]) for byte in range(256)] + [text.encode() for text in texts] + [b""]
    eos = len(tokens) - 1
    document = json.dumps({"format": {"type": "sequence", "elements": [tag("<p>", ANY, "</p>"), triggered(GET)]}})
    constraint = structural_tag(document)
    host = FakeHost(shipped_guest("grammar"), tokens, eos=eos, arg=constraint.argument.encode())
    report = check_structural_tag(document, SPACED)
    assert constraint.argument == report.guest_text
    looked_at = {
        "",
        "<p>",
        "<p>I <</",
        "<p>I <</p>a<",
        "<p>I <</p>a<<f=",
        f"<p>I <</p>a<{CALL[:20]}",
        f"<p>I <</p>a<{CALL}",
    }
    some = [ord(char) for char in '\n "<>/=Iafpgt{}c']
    done = ""
    for char in f"<p>I <</p>a<{CALL} ":
        host.mid_process()
        if done in looked_at:
            candidates = {token: tokens[token].decode() for token in [*some, *range(256, eos)]}
            verdicts = accepts_texts(report, [done, *(done + text for text in candidates.values())])
            sizes = [at - len(done) for _, at in verdicts[1:]]
            viable = {token for (token, text), size in zip(candidates.items(), sizes, strict=True) if size == len(text)}
            assert host.allowed() & set(candidates) == viable, done
            assert (eos in host.allowed()) == verdicts[0][0], done
        host.post_process([ord(char)])
        done += char


def test_many_tools_fit() -> None:
    properties = {
        f"field_{n}": {"type": ("string", "integer", "boolean")[n % 3], "description": "x"} for n in range(12)
    }
    schema = {"type": "object", "properties": properties, "required": ["field_0", "field_5"]}
    tools = [
        tag(f"<f=tool_{n}>", {"type": "json_schema", "json_schema": {**schema, "title": str(n)}}, "</f>")
        for n in range(30)
    ]
    report = check_structural_tag(json.dumps({"format": triggered(*tools)}), SPACED)
    assert report.problems == ()
    call = '<f=tool_29>{"field_0": "a", "field_3": "b", "field_5": true}</f>'
    assert accepts_texts(report, [f"Hi {call} {call}", "<f=tool_30"]) == [(True, 4 + 2 * len(call)), (False, 9)]
