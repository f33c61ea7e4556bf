"""The sampling fields of requests, made from the table in `aici_engine.sampling_params`.

A class that is decorated here has the fields at run time. A field that code reads by name is declared under
TYPE_CHECKING too.
"""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypeVar, cast

import msgspec
from pydantic import BaseModel, BeforeValidator, Field, create_model

from aici_engine.parameter import REQUIRED, Api, ApiField, Parameter
from aici_engine.sampling_params import PARAMETERS

_Model = TypeVar("_Model", bound=BaseModel)
_Struct = TypeVar("_Struct", bound=msgspec.Struct)

_SCALARS: dict[str, Any] = {"number": float, "whole number": int, "flag": bool}


def with_sampling_fields(api: Api) -> Callable[[type[_Model]], type[_Model]]:
    """Decorate a pydantic model: the fields that a protocol has for sampling parameters are added."""

    def add_fields(model: type[_Model]) -> type[_Model]:
        fields: dict[str, Any] = {}
        for parameter, field in _declared(api):
            kind = _pydantic_type(parameter, field)
            default = ... if field.default is REQUIRED else _copied(field.default)
            for name in field.names:
                fields[name] = (kind, Field(default, description=parameter.help))
        return create_model(
            model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **fields
        )

    return add_fields


def with_sampling_members(api: Api) -> Callable[[type[_Struct]], type[_Struct]]:
    """Decorate a msgspec Struct in the same way."""

    def add_members(struct: type[_Struct]) -> type[_Struct]:
        members: list[Any] = []
        for parameter, field in _declared(api):
            default = msgspec.NODEFAULT if field.default is REQUIRED else _copied(field.default)
            members += [(name, _msgspec_type(parameter, field), default) for name in field.names]
        added = msgspec.defstruct(
            struct.__name__,
            members,
            bases=(struct,),
            module=struct.__module__,
            namespace={"__doc__": struct.__doc__},
            kw_only=True,
            forbid_unknown_fields=True,
        )
        return cast("type[_Struct]", added)

    return add_members


def _declared(api: Api) -> Iterator[tuple[Parameter, ApiField]]:
    for parameter in PARAMETERS.values():
        if (field := parameter.field(api)) is not None:
            yield parameter, field


def _copied(default: Any) -> Any:
    """Return a default as a JSON type: a tuple as a list."""
    return list(default) if isinstance(default, tuple) else default


def _pydantic_type(parameter: Parameter, field: ApiField) -> Any:
    bounds = Field(ge=field.ge, gt=field.gt, le=field.le, lt=field.lt)
    kind: Any
    if parameter.kind == "texts":
        kind = Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=field.max_items)]
        if field.one_alone:
            kind = Annotated[kind, BeforeValidator(_listed, json_schema_input_type=str | list[str])]
    elif parameter.kind == "tokens":
        kind = Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=field.max_items)]
    elif parameter.kind == "token runs":
        run = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
        kind = Annotated[list[run], Field(max_length=field.max_items)]
    elif parameter.kind == "biases":
        kind = dict[str, Annotated[float, bounds]]
    else:
        kind = _SCALARS[parameter.kind]
        kind = kind if field.bounds == (None, None, None, None) else Annotated[kind, bounds]
    return kind | None if field.default is None else kind


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _msgspec_type(parameter: Parameter, field: ApiField) -> Any:
    kind: Any
    if parameter.kind == "texts":
        texts = list[Annotated[str, msgspec.Meta(min_length=1)]]
        return Annotated[texts, msgspec.Meta(max_length=field.max_items)]
    if parameter.kind == "tokens":
        return Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(max_length=field.max_items)]
    if parameter.kind == "biases":
        # The engine checks the range of the biases: on this wire a request may have megabytes of biases.
        return dict[Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)], float] | None
    kind = _SCALARS[parameter.kind]
    # msgspec accepts bounds of up to 63 bits, and only one bound per side.
    bounds = {name: bound for name in ("ge", "gt", "le", "lt") if (bound := getattr(field, name)) is not None}
    if "lt" in bounds and bounds["lt"] == 1 << 63:
        bounds["le"] = bounds.pop("lt") - 1
    kind = Annotated[kind, msgspec.Meta(**bounds)] if bounds else kind
    return kind | None if field.default is None else kind
