"""Random strings of a pattern or a format."""

import random
import re
from typing import Any, Final

FORMATS: Final[dict[str, list[str]]] = {
    "date": ["2024-02-29", "1999-12-31"],
    "time": ["23:59:59Z", "07:05:00+01:00"],
    "date-time": ["2024-02-29T23:59:59Z", "1999-12-31T07:05:00.125+01:00"],
    "duration": ["P1D", "PT5M", "P1Y2M3DT4H"],
    "email": ["ada@example.com", "a.b+c@mail.example.org"],
    "idn-email": ["ada@example.com"],
    "hostname": ["example.com", "a-b.example"],
    "idn-hostname": ["example.com"],
    "ipv4": ["127.0.0.1", "10.0.255.1"],
    "ipv6": ["::1", "2001:db8::8a2e:370:7334"],
    "uuid": ["123e4567-e89b-42d3-a456-426614174000"],
    "uri": ["https://example.com/a?b=c#d", "mailto:ada@example.com", "urn:isbn:0451450523"],
    "uri-reference": ["/a/b", "#here", "https://example.com"],
    "iri": ["https://example.com/é"],
    "iri-reference": ["/é"],
    "uri-template": ["/users/{id}", "/plain"],
    "json-pointer": ["/a/0", ""],
    "relative-json-pointer": ["0", "1/a"],
    "regex": ["^a+$", "[0-9]{2}"],
    "byte": ["aGVsbG8="],
    "guid": ["123e4567-e89b-42d3-a456-426614174000"],
    "uuid4": ["123e4567-e89b-42d3-a456-426614174000"],
    "path": ["src/app"],
    "file-path": ["/etc/hosts"],
    "directory-path": ["/etc"],
    "base64": ["aGVsbG8="],
}
_WORDS: Final = ["a", "name", "Hello, world", "x-1", "é", 'say "yes"', "1.0", "", "back\\slash", "two\nlines", "UPPER"]


class NoStringError(Exception):
    """The pattern is not read by Python."""


def sampled_string(schema: dict[str, Any], rng: random.Random) -> str:
    """Return a string that probably fits `pattern`, `format`, `minLength` and `maxLength`."""
    pattern, form = schema.get("pattern"), schema.get("format")
    low, high = schema.get("minLength", 0), schema.get("maxLength", 10**9)
    for _ in range(20):
        if isinstance(pattern, str):
            text = matching(pattern, rng)
        elif isinstance(form, str) and form in FORMATS:
            text = rng.choice(FORMATS[form])
        else:
            text = rng.choice(_WORDS)
            text += "w" * min(max(0, low - len(text)), 5000)
            text = text[: min(high, 5000)]
        if low <= len(text) <= high:
            return text
    return text


def matching(pattern: str, rng: random.Random) -> str:
    """Return a string in which a pattern is found; look-around is not regarded. Raise NoStringError for a pattern that
    Python does not read."""
    text = re.sub(r"\\p\{\w+\}", "[A-Za-z]", pattern).replace(r"\d", "[0-9]").replace("[[0-9]", "[0-9")
    text = re.sub(r"\(\?<([A-Za-z]\w*)>", r"(?P<\1>", text)
    try:
        tree = re._parser.parse(text)  # type: ignore[attr-defined]
    except (re.error, RecursionError, OverflowError) as error:
        raise NoStringError(str(error)) from error
    return _written(tree, rng, {})


def _written(tree: Any, rng: random.Random, groups: dict[int, str]) -> str:
    return "".join(_part(str(op), argument, rng, groups) for op, argument in tree)


def _part(op: str, argument: Any, rng: random.Random, groups: dict[int, str]) -> str:
    match op:
        case "LITERAL":
            return chr(argument)
        case "NOT_LITERAL":
            return rng.choice([char for char in "ab0-_ " if ord(char) != argument])
        case "ANY":
            return rng.choice("ab0-_ /é")
        case "IN":
            return _member(argument, rng)
        case "BRANCH":
            return _written(rng.choice(argument[1]), rng, groups)
        case "SUBPATTERN":
            text = _written(argument[3], rng, groups)
            groups[argument[0]] = text
            return text
        case "ATOMIC_GROUP":
            return _written(argument, rng, groups)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            low, high, inner = argument
            times = rng.randint(int(low), min(int(high), int(low) + rng.choice([0, 1, 3])))
            return "".join(_written(inner, rng, groups) for _ in range(times))
        case "GROUPREF":
            return groups.get(argument, "")
    return ""  # an anchor, or look-around


def _member(items: Any, rng: random.Random) -> str:
    """Return a member of a class."""
    if str(items[0][0]) == "NEGATE":
        text = "".join(_member([item], rng) for item in items[1:])
        return next(
            (char for char in rng.sample("abzAZ059-_ .,;#@/é", 18) if char not in text and _is_out(items, char)), "q"
        )
    op, argument = rng.choice(items)
    match str(op):
        case "LITERAL":
            return chr(argument)
        case "RANGE":
            return chr(rng.randint(argument[0], min(argument[1], argument[0] + 60)))
    return {"CATEGORY_DIGIT": "7", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "w"}.get(
        str(argument), "x-"[rng.randint(0, 1)]
    )


def _is_out(items: Any, char: str) -> bool:
    return not any(str(op) == "RANGE" and argument[0] <= ord(char) <= argument[1] for op, argument in items)
