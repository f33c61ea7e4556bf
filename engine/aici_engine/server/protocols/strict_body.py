"""The base of the bodies of OpenAI's protocols."""

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from aici_engine.server.gateway.body_shape import checked_keys


class StrictBody(BaseModel):
    """Strict: "5" is not a number. Unknown fields are refused by name. A null field counts as absent."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if isinstance(checked_keys(value), dict):
            return {name: field for name, field in value.items() if field is not None}
        return value
