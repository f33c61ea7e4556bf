"""Fields that are refused by name, whole or but for values without effect."""

from typing import Annotated, Any

from pydantic import BeforeValidator


def only(*harmless: object) -> BeforeValidator:
    """Return a validator that accepts only the values without effect, `harmless`."""

    def check(value: object) -> object:
        if value not in harmless:
            also = f", other than {' or '.join(map(repr, harmless))}" if harmless else ""
            raise ValueError(f"not supported{also}: leave it out")
        return value

    return BeforeValidator(check)


Unsupported = Annotated[Any, only()]
"""The type of a field that is refused by name, whatever the value."""
