"""JSON Schemas of Python types, and instances of the types from JSON.

Dataclasses, TypedDicts, enums, `Literal`, unions, containers, dates, UUIDs and paths need the standard library alone.
All other types are pydantic's, where it is installed.
"""

import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import types
import typing
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aici.errors import UnavailableError, UsageError

_SCALARS: Final[Mapping[object, str]] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_LISTS: Final[tuple[object, ...]] = (list, tuple, set, frozenset, Sequence)
_TEXTS: Final[Mapping[object, tuple[dict[str, str], Callable[[str], Any]]]] = {
    datetime.date: ({"type": "string", "format": "date"}, datetime.date.fromisoformat),
    datetime.time: ({"type": "string", "format": "time"}, datetime.time.fromisoformat),
    datetime.datetime: ({"type": "string", "format": "date-time"}, datetime.datetime.fromisoformat),
    uuid.UUID: ({"type": "string", "format": "uuid"}, uuid.UUID),
    pathlib.Path: ({"type": "string"}, pathlib.Path),
    decimal.Decimal: ({"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?$"}, decimal.Decimal),
}
"""Types written as strings: their schema, and the function that reads the string."""


@dataclass(frozen=True, slots=True)
class Shape:
    """`schema` is JSON text. `parse` makes an instance of JSON text, and raises ValueError if the text is no JSON."""

    schema: str
    parse: Callable[[str], Any]


def described(schema: object) -> Shape:
    """Return the shape of a JSON Schema or of a type. Raise UsageError for a type without a schema."""
    if isinstance(schema, str):
        return Shape(schema, json.loads)
    if isinstance(schema, Mapping | bool):
        try:
            return Shape(json.dumps(schema, ensure_ascii=False), json.loads)
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"the schema is not JSON: {error}") from error
    if not _is_type(schema):
        raise UsageError(
            f"json_schema takes a schema or a type, not {type(schema).__name__}",
            hint="give a dict, JSON text, a dataclass, a TypedDict, an enum, Literal[...] or a pydantic model",
        )
    try:
        document = _Schemas().document(schema)
    except _NotPlainError as error:
        return _by_pydantic(schema, f"{error}, which only pydantic describes")
    return Shape(json.dumps(document, ensure_ascii=False), lambda text: _instance(schema, json.loads(text)))


def function_schema(function: str, parameters: Mapping[str, tuple[object, bool]]) -> dict[str, Any]:
    """Return the schema of the arguments of a function. `parameters` maps a name to a type, and to True if required.

    Raise UsageError for a type without a schema.
    """
    writer = _Schemas()
    properties: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    for name, (kind, _) in parameters.items():
        try:
            _Schemas().schema(kind)
            properties[name] = writer.schema(kind)
        except _NotPlainError as error:
            try:
                shape = _by_pydantic(kind, f"{error}, which only pydantic describes", f"#/$defs/{name}.{{model}}")
            except (UsageError, UnavailableError) as refused:
                raise type(refused)(f"parameter {name} of {function}: {refused.message}", hint=refused.hint) from error
            properties[name] = json.loads(shape.schema)
            inner = properties[name].pop("$defs", {})
            definitions |= {f"{name}.{key}": definition for key, definition in inner.items()}
    required = [name for name, (_, is_required) in parameters.items() if is_required]
    schema = writer.with_definitions(
        {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    )
    return schema | ({"$defs": schema.get("$defs", {}) | definitions} if definitions else {})


def build(kind: object, value: Any) -> Any:
    """Return JSON as an instance of a type of `function_schema`."""
    try:
        _Schemas().schema(kind)
    except _NotPlainError as error:
        return _by_pydantic(kind, f"{error}, which only pydantic describes").parse(json.dumps(value))
    return _build(kind, value)


def _by_pydantic(kind: Any, why: str, ref_template: str = "#/$defs/{model}") -> Shape:
    try:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"{why}, and pydantic is not installed", hint="pip install pydantic, or give a dataclass or a TypedDict"
        ) from error
    try:
        adapter: Any = TypeAdapter(kind)
        schema = adapter.json_schema(ref_template=ref_template)
    except PydanticUserError as error:
        raise UsageError(f"pydantic makes no JSON Schema of {_name(kind)}: {error.message}") from error

    def parse(text: str) -> Any:
        json.loads(text)  # ValueError: the text is no JSON
        try:
            return adapter.validate_json(text)
        except ValueError as error:
            raise UsageError(f"{_name(kind)} refuses what its schema allows: {error}") from error

    return Shape(json.dumps(schema, ensure_ascii=False), parse)


def _instance(record: Any, value: Any) -> Any:
    try:
        return _build(record, value)
    except ValueError as error:  # of the class itself: the text is complete
        raise UsageError(f"{_name(record)} refuses what its schema allows: {error}") from error


class _NotPlainError(Exception):
    """The type has no schema in this module."""


class _Schemas:
    """Writes schemas, and collects the schemas of classes under `$defs`."""

    def __init__(self) -> None:
        self._definitions: dict[str, Any] = {}
        self._names: dict[object, str] = {}

    def document(self, record: object) -> dict[str, Any]:
        return self.with_definitions(self.schema(record))

    def with_definitions(self, schema: dict[str, Any]) -> dict[str, Any]:
        return {**schema, "$defs": self._definitions} if self._definitions else schema

    def schema(self, kind: object) -> dict[str, Any]:
        if kind is Any or kind is object:
            return {}
        if kind is None or kind is type(None):
            return {"type": "null"}
        if isinstance(kind, typing.NewType):
            return self.schema(kind.__supertype__)
        if isinstance(kind, type) and kind in _SCALARS:
            return {"type": _SCALARS[kind]}
        if isinstance(kind, type) and kind in _TEXTS:
            return dict(_TEXTS[kind][0])
        if _is_record(kind):
            return self._record(kind)
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return {"enum": [_plain(member.value) for member in kind]}
        return self._generic(kind, typing.get_origin(kind) or kind, typing.get_args(kind))

    def _generic(self, kind: object, origin: object, args: tuple[Any, ...]) -> dict[str, Any]:
        if origin is typing.Annotated:
            notes = [note for note in args[1:] if isinstance(note, str)]
            if len(notes) < len(args) - 1:  # constraints, as pydantic's Field
                raise _NotPlainError(f"{_name(kind)} has annotations that are not texts")
            return self.schema(args[0]) | {"description": notes[0]}
        if origin in (typing.Required, typing.NotRequired):
            return self.schema(args[0])
        if origin is typing.Literal:
            return {"enum": [_plain(value) for value in args]}
        if origin in (typing.Union, types.UnionType):
            return {"anyOf": [self.schema(arg) for arg in args]}
        if origin is tuple and args and args[-1] is not Ellipsis:
            items = [self.schema(arg) for arg in args]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        if origin in (dict, Mapping):
            if args and args[0] is not str:
                raise _NotPlainError(f"{_name(kind)} has keys that are not strings")
            return {"type": "object", "additionalProperties": self.schema(args[1]) if args else True}
        if origin in _LISTS:
            unique = {"uniqueItems": True} if origin in (set, frozenset) else {}
            return {"type": "array", "items": self.schema(args[0]) if args else {}} | unique
        raise _NotPlainError(f"{_name(kind)} is a type")

    def _record(self, kind: Any) -> dict[str, Any]:
        if kind not in self._names:
            name = kind.__name__ if kind.__name__ not in self._definitions else f"{kind.__name__}{len(self._names)}"
            self._names[kind] = name
            self._definitions[name] = {}
            fields = _fields(kind)
            self._definitions[name] = {
                "type": "object",
                "properties": {field: self.schema(inner) for field, (inner, _) in fields.items()},
                "required": [field for field, (_, is_required) in fields.items() if is_required],
                "additionalProperties": False,
            }
        return {"$ref": f"#/$defs/{self._names[kind]}"}


def _is_type(value: object) -> bool:
    return isinstance(value, type | typing.NewType) or value is Any or typing.get_origin(value) is not None


def _is_record(kind: object) -> bool:
    """Tell whether a type is a dataclass or a TypedDict, and not pydantic's, whose fields have constraints."""
    is_record = isinstance(kind, type) and (dataclasses.is_dataclass(kind) or typing.is_typeddict(kind))
    return is_record and not hasattr(kind, "__pydantic_validator__")


def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Return the fields: name to type, and to True for a required field."""
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise UsageError(f"a type that {_name(kind)} names is not known: {error}") from error
    if typing.is_typeddict(kind):
        return {name: (hint, name in kind.__required_keys__) for name, hint in hints.items()}
    missing = dataclasses.MISSING
    return {
        field.name: (hints[field.name], field.default is missing and field.default_factory is missing)
        for field in dataclasses.fields(kind)
        if field.init
    }


def _build(kind: Any, value: Any) -> Any:
    """Return `value`, valid JSON of `kind`, as an instance of `kind`."""
    if isinstance(kind, typing.NewType):
        return _build(kind.__supertype__, value)
    if isinstance(kind, type) and kind in _TEXTS:
        return _TEXTS[kind][1](value)
    if _is_record(kind):
        fields = _fields(kind)
        return kind(**{name: _build(fields[name][0], inner) for name, inner in value.items()})
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(member for member in kind if _same(_plain(member.value), value))
    origin, args = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin in (typing.Annotated, typing.Required, typing.NotRequired):
        return _build(args[0], value)
    if origin in (typing.Union, types.UnionType):
        return next(_build(arg, value) for arg in args if _fits(arg, value))
    if origin is float:
        return float(value)
    if origin is tuple and args and args[-1] is not Ellipsis:
        return tuple(_build(arg, inner) for arg, inner in zip(args, value, strict=True))
    if isinstance(value, dict):
        return {name: _build(args[1], inner) for name, inner in value.items()} if args else value
    if isinstance(value, list):
        items = [_build(args[0], inner) for inner in value] if args else value
        return origin(items) if origin in (tuple, set, frozenset) else items
    return value


def _fits(kind: Any, value: Any) -> bool:
    """Tell whether `value` is of the branch `kind` of a union, judged by JSON type and names."""
    if isinstance(kind, typing.NewType):
        return _fits(kind.__supertype__, value)
    if isinstance(kind, type) and kind in _TEXTS:
        return isinstance(value, str) and _reads(_TEXTS[kind][1], value)
    if _is_record(kind):
        fields = _fields(kind)
        required = {name for name, (_, is_required) in fields.items() if is_required}
        return (
            isinstance(value, dict)
            and required <= value.keys() <= fields.keys()
            and all(_fits(fields[name][0], inner) for name, inner in value.items())
        )
    if kind is Any or kind is object:
        return True
    if kind is None or kind is type(None):
        return value is None
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return any(_same(_plain(member.value), value) for member in kind)
    origin, args = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin in (typing.Annotated, typing.Required, typing.NotRequired):
        return _fits(args[0], value)
    if origin is typing.Literal:
        return any(_same(arg, value) for arg in args)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(arg, value) for arg in args)
    if origin is tuple and args and args[-1] is not Ellipsis:
        return isinstance(value, list) and len(value) == len(args) and all(map(_fits, args, value))
    if origin is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if origin is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin in (str, bool):
        return isinstance(value, origin)
    if origin in _LISTS:
        return isinstance(value, list) and all(_fits(arg, inner) for arg in args[:1] for inner in value)
    return isinstance(value, dict) and all(_fits(arg, inner) for arg in args[1:] for inner in value.values())


def _reads(read: Callable[[str], Any], text: str) -> bool:
    try:
        read(text)
    except (ValueError, decimal.InvalidOperation):
        return False
    return True


def _same(left: object, right: object) -> bool:
    """Equality of JSON: True is not 1."""
    return left == right and isinstance(left, bool) == isinstance(right, bool)


def _plain(value: object) -> object:
    if not isinstance(value, str | int | float | bool | None):
        raise _NotPlainError(f"{value!r} is not JSON")
    return value


def _name(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)
