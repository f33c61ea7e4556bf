"""Random schemas with valid and changed instances, against two validators."""

import json
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import jsonschema
import jsonschema_rs

from tests.controllers.differential.findings import Finding, Tool
from tests.support.native_tool import NoAnswerError

_KEYS: Final = ["a", "b", "ab", "c", "ü"]
_STRINGS: Final = ["", "a", "b", "ab", "aab", "ü", 'q"\n', "😀b"]
_NUMBERS: Final[list[Any]] = [0, 1, 2, 3, 6, 10, -1, -12, 0.5, 1.5, -0.25, 2.75, 99.125]
_PATTERNS: Final = ["^a", "b$", "a.?b", "^[ab]*$", "ü|q", "^(?!a)", "^.{1,2}$"]
_TYPES: Final = ["null", "boolean", "integer", "number", "string", "array", "object"]
NUM_VALUES: Final = 24


class Schemas:
    """Draws schemas of draft 2020-12, and values that often fit."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._names: list[str] = []

    def schema(self) -> Any:
        """Return a schema; a third of the schemas have definitions, which may recur."""
        if self._random.random() < 0.35:
            self._names = ["A", "B"][: self._random.randint(1, 2)]
        body = self._any(self._random.randint(2, 9))
        if not self._names or not isinstance(body, dict):
            return body
        return {**body, "$defs": {name: self._any(4) for name in self._names}}

    def value(self, depth: int = 0) -> Any:
        random = self._random
        kind = random.choice(["scalar", "scalar", "list", "dict", "dict"] if depth < 3 else ["scalar"])
        if kind == "list":
            return [self.value(depth + 1) for _ in range(random.choice([0, 1, 2, 2, 3]))]
        if kind == "dict":
            return {key: self.value(depth + 1) for key in random.sample(_KEYS, random.choice([0, 1, 2, 2, 3]))}
        return random.choice([None, True, False, *_NUMBERS, *_STRINGS])

    def fitting(self, schema: Any, depth: int = 0) -> Any:
        """Return a value that probably fits."""
        random = self._random
        if not isinstance(schema, dict) or depth > 4:
            return self.value(min(depth, 3))
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return random.choice(schema["enum"])
        parts = [part for word in ("allOf", "anyOf", "oneOf") for part in schema.get(word, [])]
        if parts and random.random() < 0.4:
            return self.fitting(random.choice(parts), depth + 1)
        if {"properties", "required", "patternProperties"} & schema.keys() and random.random() < 0.8:
            named = schema.get("properties", {})
            keys = [key for key in named if random.random() < 0.7] + schema.get("required", [])
            keys += [random.choice(_KEYS) for _ in range(schema.get("minProperties", 0))]
            keys += random.sample(_KEYS, random.choice([0, 0, 1]))
            random.shuffle(keys)
            return {key: self.fitting(named.get(key, schema.get("additionalProperties")), depth + 1) for key in keys}
        if {"items", "prefixItems", "contains", "uniqueItems"} & schema.keys() and random.random() < 0.8:
            first = schema.get("prefixItems", [])
            num = random.choice([0, 1, 2, len(first), len(first) + 1, schema.get("minItems", 0)])
            items = [first[at] if at < len(first) else schema.get("items") for at in range(num)]
            return [self.fitting(item, depth + 1) for item in items]
        return self.value(min(depth, 3))

    def changed(self, value: Any) -> Any:
        random = self._random
        if isinstance(value, dict) and value and random.random() < 0.7:
            key = random.choice(list(value))
            match random.randrange(4):
                case 0:
                    return {other: inner for other, inner in value.items() if other != key}
                case 1:
                    return {**value, random.choice(_KEYS): self.value(2)}
            return {**value, key: self.changed(value[key])}
        if isinstance(value, list) and value and random.random() < 0.7:
            at = random.randrange(len(value))
            middle = random.choice([[], [value[at]] * 2, [self.changed(value[at])]])
            return [*value[:at], *middle, *value[at + 1 :]]
        return self.value(2)

    def _any(self, budget: int) -> Any:
        random = self._random
        if self._names and random.random() < 0.2:
            return {"$ref": f"#/$defs/{random.choice(self._names)}"}
        if budget <= 1 or random.random() < 0.2:
            return self._leaf()
        kind = random.choice([self._object, self._object, self._array, self._combined, self._combined])
        schema = kind(budget - 1)
        if random.random() < 0.25:
            schema = {**random.choice([self._object, self._array, self._combined])(budget // 2), **schema}
        return schema

    def _leaf(self) -> Any:
        random = self._random
        match random.randrange(9):
            case 0:
                return random.random() < 0.7
            case 1 | 2:
                return self._some(
                    type=random.choice(["number", "integer", ["integer", "null"]]),
                    minimum=random.choice(_NUMBERS),
                    maximum=random.choice(_NUMBERS),
                    exclusiveMinimum=random.choice(_NUMBERS),
                    multipleOf=random.choice([1, 2, 3, 0.5, 0.25]),
                )
            case 3 | 4:
                return self._textual()
            case 5:
                return {"enum": [self.value(1) for _ in range(random.randint(1, 3))]}
            case 6:
                return {"const": self.value(1)}
        return {"type": random.choice([*_TYPES, random.sample(_TYPES, 2)])}

    def _textual(self) -> dict[str, Any]:
        random = self._random
        return self._some(
            type="string",
            minLength=random.randint(0, 2),
            maxLength=random.randint(0, 3),
            pattern=random.choice(_PATTERNS),
        )

    def _array(self, budget: int) -> dict[str, Any]:
        random = self._random
        part = max(1, budget // 2)
        return self._some(
            type="array",
            items=self._any(part),
            prefixItems=[self._any(part) for _ in range(random.randint(1, 2))],
            minItems=random.randint(0, 2),
            maxItems=random.randint(0, 3),
            contains=self._any(part),
            minContains=random.randint(0, 2),
            maxContains=random.randint(0, 2),
            unevaluatedItems=self._any(part),
        )

    def _object(self, budget: int) -> dict[str, Any]:
        random = self._random
        part = max(1, budget // 2)
        return self._some(
            type="object",
            properties={key: self._any(part) for key in random.sample(_KEYS, random.randint(1, 3))},
            required=random.sample(_KEYS, random.randint(1, 2)),
            additionalProperties=self._any(part),
            patternProperties={random.choice(_PATTERNS): self._any(part)},
            propertyNames=self._textual(),
            minProperties=random.randint(0, 2),
            maxProperties=random.randint(0, 3),
            dependentRequired={random.choice(_KEYS): random.sample(_KEYS, 1)},
            dependentSchemas={random.choice(_KEYS): self._any(part)},
            unevaluatedProperties=self._any(part),
        )

    def _combined(self, budget: int) -> dict[str, Any]:
        random = self._random
        part = max(1, budget // 2)
        if random.random() < 0.3:
            return {"if": self._any(part), "then": self._any(part), "else": self._any(part)}
        if random.random() < 0.2:
            return {"not": self._any(part)}
        return {random.choice(["allOf", "anyOf", "oneOf"]): [self._any(part) for _ in range(random.randint(1, 3))]}

    def _some(self, **keywords: Any) -> dict[str, Any]:
        share = self._random.choice([0.2, 0.35, 0.5])
        return {key: value for key, value in keywords.items() if self._random.random() < share}


def random_schema(tool: Tool, random: Random, counts: Counter[str]) -> Iterator[Finding]:
    drawn = Schemas(random)
    schema = drawn.schema()
    validator = jsonschema_rs.Draft202012Validator(schema)
    values = [drawn.value() if random.random() < 0.2 else drawn.fitting(schema) for _ in range(NUM_VALUES // 2)]
    values += [drawn.changed(random.choice(values)) for _ in range(NUM_VALUES // 2)]
    texts = list({json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in values})
    try:
        answer = tool.ask({"schema": schema, "objects": "open", "property_order": "any", "texts": texts})
    except NoAnswerError as error:
        yield Finding(json.dumps(schema), "", str(error))
        return
    if "failed" in answer or answer["problems"]:
        why = answer.get("failed") or answer["problems"][0]["message"]
        counts[f"declined: {why}"] += 1
        stopped: list[int | None] = [0] * len(texts)
        if not why.startswith("no value satisfies"):
            return
    else:
        stopped = answer["texts"]
    counts["with a warning"] += bool(answer.get("warnings"))
    for text, stop in zip(texts, stopped, strict=True):
        value = json.loads(text)
        expected = validator.is_valid(value)
        counts["valid" if expected else "invalid"] += 1
        if (stop is None) == expected or (expected is False and answer.get("warnings")):
            continue
        try:
            second = jsonschema.Draft202012Validator(schema).is_valid(value)
        except RecursionError:
            second = not expected
        if second == expected:
            yield Finding(json.dumps(schema, ensure_ascii=False), text, f"accepted: {stop is None}, valid: {expected}")
        else:
            counts["validators differ"] += 1
