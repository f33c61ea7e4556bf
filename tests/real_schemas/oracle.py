"""The verdict of two independent validators: jsonschema, and jsonschema-rs."""

import json
import re
from typing import Any

import jsonschema
import jsonschema_rs
from jsonschema.protocols import Validator

from tests.real_schemas.sampled_strings import FORMATS

_RUST: dict[Any, Any] = {
    jsonschema.Draft4Validator: jsonschema_rs.Draft4Validator,
    jsonschema.Draft6Validator: jsonschema_rs.Draft6Validator,
    jsonschema.Draft7Validator: jsonschema_rs.Draft7Validator,
    jsonschema.Draft201909Validator: jsonschema_rs.Draft201909Validator,
    jsonschema.Draft202012Validator: jsonschema_rs.Draft202012Validator,
}


def _sure_formats() -> jsonschema.FormatChecker:
    """Return the check that a text of a known format is one of the texts that every reader of the format takes."""
    checker = jsonschema.FormatChecker(formats=())
    for name, texts in FORMATS.items():
        checker.checks(name)(lambda value, texts=texts: not isinstance(value, str) or value in texts)
    return checker


_SURE_FORMATS = _sure_formats()


class NoOracleError(Exception):
    """The validators do not take the schema."""


class Oracle:
    """Raise NoOracleError for a schema that is malformed, or that a validator cannot read."""

    def __init__(self, schema: Any, dialect: type[Validator]) -> None:
        schema = without_nullable(schema)
        # Both validators read \w, \d, \s and \b as Unicode has them, and ECMA-262 as ASCII has them.
        self._is_ascii = re.search(r"\\\\[wdsb]", json.dumps(schema), re.IGNORECASE) is not None
        try:
            dialect.check_schema(schema)
        except jsonschema.SchemaError as error:
            raise NoOracleError(f"{error.json_path}: {error.message}"[:300]) from error
        self.validator = self._plain = dialect(schema)
        self._strict = dialect(schema, format_checker=_SURE_FORMATS)
        self._rust: list[Any] = []
        if dialect in _RUST:
            text = json.dumps(schema)
            try:
                self._rust = [_RUST[dialect](text, validate_formats=formats) for formats in (False, True)]
            except ValueError as error:
                raise NoOracleError(str(error)[:300]) from error

    def verdict(self, document: Any) -> bool | None:
        """Tell whether a document is valid. None: a `format` decides, or the validators disagree or are wrong."""
        if self._is_ascii and not json.dumps(document, ensure_ascii=False).isascii():
            return None
        try:
            answers = {bool(one.is_valid(document)) for one in (self._plain, self._strict, *self._rust)}
        except Exception as error:
            raise NoOracleError(f"{type(error).__name__}: {error}"[:300]) from error
        return answers.pop() if len(answers) == 1 else None


def without_nullable(schema: Any) -> Any:
    """Write OpenAPI's `nullable: true` as a union with null, which validators understand."""
    if isinstance(schema, list):
        return [without_nullable(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {
        key: without_nullable(value)
        for key, value in schema.items()
        if key not in ("enum", "const", "default", "example")
    }
    inner |= {key: schema[key] for key in ("enum", "const", "default", "example") if key in schema}
    if schema.get("nullable") is not True or not (schema.keys() & {"type", "$ref", "allOf", "anyOf", "oneOf", "enum"}):
        return inner
    return {"anyOf": [{"type": "null"}, {key: value for key, value in inner.items() if key != "nullable"}]}
