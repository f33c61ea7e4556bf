"""The measured constraints: `cases.toml`, and constraints that are easier to generate than to write."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskCase:
    """One constraint, in as many notations as the engines need. No text in `bad` is the beginning of an allowed
    text."""

    name: str
    text: str
    bad: tuple[str, ...]
    notations: Mapping[str, str]
    """By notation: regex, schema, yacc, lark, gbnf, builtin (a constraint built into an engine), choices (a JSON
    array), substring (the text)."""


def all_cases() -> list[MaskCase]:
    table = tomllib.loads(files(__package__).joinpath("cases.toml").read_text(encoding="utf-8"))
    written = [_case(name, dict(entry)) for name, entry in table.items()]
    return [*written, *_made()]


def _case(name: str, entry: dict[str, Any]) -> MaskCase:
    return MaskCase(name=name, text=entry.pop("text"), bad=tuple(entry.pop("bad")), notations=entry)


def _made() -> Iterator[MaskCase]:
    yield _enum()
    yield _wide()
    yield _optional()
    yield _pattern_keys()
    yield _json_in_grammar()
    yield _nasty()
    yield _choices()
    yield _substring()


def _schema_case(name: str, schema: object, document: object, bad: list[str]) -> MaskCase:
    text = json.dumps(document, ensure_ascii=False)
    return MaskCase(name=name, text=text, bad=tuple(bad), notations={"schema": json.dumps(schema, ensure_ascii=False)})


def _names(count: int) -> list[str]:
    colours = ("amber", "blue", "coral", "dusk", "ebony", "fawn", "green", "hazel", "ivory", "jade")
    things = ("anchor", "bridge", "candle", "drum", "engine", "feather", "garden", "harbour", "island", "jacket")
    return [f"{colours[n % 10]}-{things[n // 10 % 10]}-{n:04}" for n in range(count)]


def _enum() -> MaskCase:
    """A choice of a thousand strings with common beginnings, three times in a row."""
    names = _names(1000)
    item = {"enum": names}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"kind": item, "others": {"type": "array", "items": item}},
    }
    schema |= {"required": ["kind", "others"], "additionalProperties": False}
    document = {"kind": names[737], "others": [names[5], names[994]]}
    return _schema_case(
        "enum_1000", schema, document, ['{"kind": "amber-anchor-0001"', '{"kind": "zebra"', '{"others"']
    )


def _wide() -> MaskCase:
    """An object of sixty properties, of which two in three are optional."""
    kinds = (
        {"type": "string"},
        {"type": "integer"},
        {"type": "boolean"},
        {"type": "array", "items": {"type": "number"}},
    )
    values = ("some words, and more", 1234, True, [0.5, 17, -3e10])
    keys = [f"field_{n:02}" for n in range(60)]
    schema: dict[str, Any] = {"type": "object", "properties": {key: kinds[n % 4] for n, key in enumerate(keys)}}
    schema |= {"required": keys[::3], "additionalProperties": False}
    document = {key: values[n % 4] for n, key in enumerate(keys) if n % 3 == 0 or n % 5 < 3}
    return _schema_case("wide_60", schema, document, ['{"field_03"', '{"field_00": "x", "field_02": 1', '{"field_60"'])


def _optional() -> MaskCase:
    """An object of sixty optional integers: any later key may follow a digit."""
    keys = [f"field_{n:02}" for n in range(60)]
    schema = {
        "type": "object",
        "properties": {key: {"type": "integer"} for key in keys},
        "additionalProperties": False,
    }
    document = {key: n * 37 for n, key in enumerate(keys) if n % 3}
    return _schema_case(
        "optional_60", schema, document, ['{"field_60"', '{"field_02": 1, "field_01"', '{"field_01": "']
    )


def _pattern_keys() -> MaskCase:
    """An object whose keys match one of eight patterns, with long strings as values."""
    patterns = (
        "^x-",
        "^[a-z]+_url$",
        "^[A-Z][a-zA-Z0-9]*$",
        "_(id|key)$",
        "^[0-9]{1,4}$",
        "^\\$[a-z]+$",
        "[^a-z0-9_-]",
        "^(get|put|post|delete)/",
    )
    schema = {
        "type": "object",
        "patternProperties": {key: {"type": "string", "maxLength": 4096} for key in patterns},
        "additionalProperties": False,
    }
    document = {"x-trace": "on the way", "User1": "Ada", "user_id": "u-17", "404": "not found", "get/users": "all"}
    return _schema_case("pattern_keys_8", schema, document, ['{"user"', '{"x-a": 1', '{"12345": '])


def _json_in_grammar() -> MaskCase:
    """JSON of a schema inside a grammar, with bounded strings."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "title": {"type": "string", "minLength": 1, "maxLength": 500},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 40}},
        },
        "required": ["id", "title"],
        "additionalProperties": False,
    }
    spaced = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    yacc = f'%start doc\n%%\ndoc : NAME "=" BODY ;\nNAME : "/[a-z]+/" ;\nBODY : %json {json.dumps(schema)} ;\n'
    lark = f'start: NAME "=" body\nNAME: /[a-z]+/\nbody: %json {json.dumps(schema | {"x-guidance": spaced})}\n'
    text = 'item={"id": 17, "title": "A title of some length", "tags": ["new", "old", "in stock"]}'
    bad = ('item={"title"', 'item={"id": 17, "title": ""', "item{", 'item={"id": 17}')
    return MaskCase(name="json_in_grammar", text=text, bad=bad, notations={"yacc": yacc, "lark": lark})


def _nasty() -> MaskCase:
    """Bounded strings, patterns, formats, ranges, alternatives, recursion, and extra properties with a schema."""
    schema = {
        "type": "object",
        "properties": {
            "ids": {
                "type": "array",
                "items": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4,8}$"},
                "minItems": 1,
                "maxItems": 20,
            },
            "title": {"type": "string", "minLength": 1, "maxLength": 500},
            "score": {"type": "integer", "minimum": -50, "maximum": 12345},
            "when": {"type": "string", "format": "date-time"},
            "shape": {
                "anyOf": [
                    {"type": "number"},
                    {
                        "type": "object",
                        "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}},
                        "required": ["kind", "radius"],
                        "additionalProperties": False,
                    },
                    {
                        "type": "object",
                        "properties": {"kind": {"const": "box"}, "sides": {"$ref": "#/$defs/pair"}},
                        "required": ["kind", "sides"],
                        "additionalProperties": False,
                    },
                ]
            },
            "tree": {"$ref": "#/$defs/tree"},
        },
        "required": ["ids", "title", "score", "when", "shape", "tree"],
        "additionalProperties": {"type": "string", "maxLength": 40},
        "$defs": {
            "pair": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 2, "maxItems": 2},
            "tree": {
                "type": "object",
                "properties": {
                    "label": {"type": "string", "maxLength": 20},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 4},
                },
                "required": ["label"],
                "additionalProperties": False,
            },
        },
    }
    document = {
        "ids": ["AB-1234", "XY-98765432"],
        "title": "A title of some length, with a “quotation” in it, that goes on for a while and then ends.",
        "score": 1207,
        "when": "2024-11-05T23:59:07.250Z",
        "shape": {"kind": "box", "sides": [3, 44]},
        "tree": {"label": "root", "children": [{"label": "leaf"}, {"label": "inner", "children": [{"label": "x"}]}]},
        "remark": "nothing to add",
    }
    head = '{"ids": ["AB-1234"], "title": "t", "score": '
    bad = ['{"ids": ["A-1"', '{"ids": []', head + "12346", head + "-51", head + '7, "when": "2024-13']
    return _schema_case("nasty", schema, document, bad)


def _choices() -> MaskCase:
    names = _names(200)
    notations = {
        "choices": json.dumps(names),
        "regex": "|".join(names),
        "lark": "start: " + " | ".join(json.dumps(name) for name in names),
        "gbnf": "root ::= " + " | ".join(json.dumps(name) for name in names),
    }
    return MaskCase(
        name="choices_200", text=names[137], bad=("amber-anchor-0001", "x", names[3] + "x"), notations=notations
    )


_STORY = """The harbour was quiet before sunrise. Two fishermen mended their nets on the pier and argued, without much
conviction, about the weather: one had read it in the clouds, the other in the newspaper. A ferry came in, turned, and
put down forty passengers, nine bicycles, a piano and a dog that belonged to nobody. By noon everyone in the town knew
about the piano. By evening everyone had an opinion of it, and the dog had found a family, a name and a place to sleep.
"""


def _substring() -> MaskCase:
    """Any run of words of a text."""
    words = " ".join(_STORY.split())
    text = words[words.index("A ferry") : words.index(" By evening")]
    lark = "start: RUN\nRUN: %regex " + json.dumps({"substring_words": words})
    notations = {"substring": words, "lark": lark}
    return MaskCase(name="substring", text=text, bad=("A ferry went", "harbour quiet", "piano!"), notations=notations)
