"""The base of every body and part of a body."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator


class Strict(BaseModel):
    """Strict: "5" is not a number. Unknown fields are refused by name. A null field counts as absent."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: field for name, field in value.items() if field is not None}
        return value


def only(*harmless: object) -> BeforeValidator:
    """Return a validator that accepts only the values without effect, `harmless`."""

    def check(value: object) -> object:
        if value not in harmless:
            also = f", other than {' or '.join(map(repr, harmless))}" if harmless else ""
            raise ValueError(f"not supported{also}: leave it out")
        return value

    return BeforeValidator(check)


Unsupported = Annotated[Any, only()]
"""The type of a field that is refused by name, whatever its value is."""
