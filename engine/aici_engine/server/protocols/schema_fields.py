"""The field `schema_options` of requests: how the schemas of the request are read."""

from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

from aici_controllers.constraints import SPACED
from aici_controllers.schema_check import SchemaOptions

_Model = TypeVar("_Model", bound=BaseModel)


def _with_options(model: type[_Model]) -> type[_Model]:
    """Decorate a pydantic model: the fields of SchemaOptions are added."""
    types = get_type_hints(SchemaOptions)
    options: dict[str, Any] = {field.name: (types[field.name], getattr(SPACED, field.name)) for field in fields(SPACED)}
    return create_model(model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **options)


@_with_options
class SchemaFields(BaseModel):
    """The options mean the same as on the command line, and hold for every schema of the request."""

    model_config = ConfigDict(extra="forbid", strict=True)

    def options(self) -> SchemaOptions:
        return SchemaOptions(**self.model_dump())
