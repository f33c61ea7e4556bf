"""Grammars inside of JSON strings, `x-aici-grammar`: what json.dumps makes of a sentence is allowed, nothing else."""

import json
import random

import pytest

from aici_base.errors import UsageError
from aici_controllers.ask_guest import ask
from aici_controllers.constraints import json_schema, json_schema_or, structural_tag

SUM = 'root ::= part ("+" part)*\npart ::= [0-9]+ | "(" root ")"'
ODD = 'root ::= "\\"" (char | root)* "\\\\" [^a]?\nchar ::= [\\n\\t/aé😀"]'


def string(grammar: str, **more: object) -> dict[str, object]:
    return {"type": "string", "x-aici-grammar": grammar, **more}


def accepted(schema: object, texts: list[str]) -> list[bool]:
    constraint = json_schema(json.dumps(schema))
    assert constraint.guest == "grammar"
    answer = ask("grammar", {"accepts": {"grammar": constraint.argument, "inputs": texts}})
    return [one["accepted"] for one in answer["answers"]]


def test_texts() -> None:
    schema = {"type": "object", "properties": {"sum": string(SUM), "n": {"type": "integer"}}, "required": ["sum"]}
    good = ['{"sum": "1"}', '{"sum": "(1+(2))+3", "n": 4}', '{"sum": "\\u0031\\u002b1"}']
    bad = ['{"sum": ""}', '{"sum": "(1"}', '{"sum": "1)"}', '{"sum": 1}', '{"n": 4}', '{"sum": "(1+2"}']
    assert accepted(schema, [*good, *bad]) == [True] * len(good) + [False] * len(bad)


def test_sentences_are_written_as_json_writes_them() -> None:
    luck = random.Random(1)
    plain = ["".join(luck.choices('"\\\n\t/aé😀b', k=luck.randint(0, 6))) for _ in range(300)]
    plain += ['"\\', '""\\\\x', '"\n"\\é\\', '"' * 3 + "\\" * 3]
    from aici_controllers.constraints import grammar

    answer = ask("grammar", {"accepts": {"grammar": grammar(ODD, syntax="gbnf").argument, "inputs": plain}})
    wanted = [one["accepted"] for one in answer["answers"]]
    assert any(wanted)
    for ascii_only in (True, False):
        assert accepted(string(ODD), [json.dumps(text, ensure_ascii=ascii_only) for text in plain]) == wanted


def test_a_grammar_without_recursion_goes_with_other_keywords() -> None:
    schema = string('root ::= [a-c]+ "-" [0-9]+', maxLength=4, pattern="^a")
    assert accepted(schema, ['"a-1"', '"ab-1"', '"abc-1"', '"b-1"']) == [True, True, False, False]


def test_several_grammars_that_refer_to_themselves() -> None:
    other = 'root ::= "x" | "<" root ">"'
    schema = {"type": "array", "prefixItems": [string(SUM), string(other), string(SUM)], "items": False, "minItems": 3}
    assert accepted(schema, ['["(1)", "<<x>>", "2"]', '["(1)", "<<x>", "2"]', '["<x>", "x", "2"]']) == [
        True,
        False,
        False,
    ]


def test_inside_of_a_structural_tag() -> None:
    content = {"type": "json_schema", "json_schema": {"type": "array", "items": string(SUM)}}
    tag = {"type": "tag", "begin": "<s>", "content": content, "end": "</s>"}
    argument = structural_tag(
        json.dumps({"format": {"type": "triggered_tags", "triggers": ["<s>"], "tags": [tag]}})
    ).argument
    texts = ['a <s>["1+2", "(3)"]</s> b', '<s>["1+"]</s>']
    answer = ask("grammar", {"accepts": {"grammar": argument, "inputs": texts}})
    assert [one["accepted"] for one in answer["answers"]] == [True, False]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"items": string("root ::= x")}, "#/items/x-aici-grammar: line 1, column 10: the rule x is not defined"),
        (string('start: "a"'), "#/x-aici-grammar: a grammar in a string is in GBNF, which has no lexer; this is Lark"),
        (string('%%\ns : "a" ;'), "#/x-aici-grammar: a grammar in a string has no lexer"),
        (string("%option scannerless\n%%\ns : %json {} ;"), "#/x-aici-grammar: a grammar in a string holds no %json"),
        ({"type": "string", "x-aici-grammar": 1}, "#/x-aici-grammar: must be a string"),
        (string(SUM, minLength=3), "an intersection holds a recursive rule"),
        ({"not": string(SUM)}, "a complement holds a recursive rule"),
    ],
)
def test_what_is_refused(schema: object, said: str) -> None:
    with pytest.raises(UsageError) as error:
        json_schema(json.dumps(schema))
    assert said in error.value.message


def test_not_beside_tools() -> None:
    with pytest.raises(UsageError, match="possible without tools only"):
        json_schema_or(json.dumps(string(SUM)), "x")
