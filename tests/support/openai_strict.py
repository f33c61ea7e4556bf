"""The official SDK's types as an oracle: a JSON value must be of a type, strictly, and have no field of its own."""

from functools import cache
from typing import Any

import pydantic
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_item import ResponseItem

Json = dict[str, Any]
OURS = frozenset({"warnings"})
"""Fields that this server adds."""


@cache
def _adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(kind, config=None)


def strictly(kind: Any, value: Json) -> Any:
    """Return `value` as an instance of a type of the SDK."""
    instance = _adapter(kind).validate_python(value, strict=True)
    _check_extras(instance, kind.__name__ if isinstance(kind, type) else str(value.get("type")))
    return instance


def strict_response(value: Json) -> Response:
    response: Response = strictly(Response, value)
    return response


def strict_event(value: Json) -> Any:
    return strictly(ResponseStreamEvent, value)


def strict_item(value: Json) -> Any:
    return strictly(ResponseItem, value)


def _check_extras(value: Any, where: str) -> None:
    if isinstance(value, pydantic.BaseModel):
        extras = set(value.model_extra or ()) - OURS
        assert not extras, f"{where} has the fields {extras}"
        for name in type(value).model_fields:
            _check_extras(getattr(value, name), f"{where}.{name}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            _check_extras(each, f"{where}.{number}")
