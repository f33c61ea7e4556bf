"""The result of rendering a chat template, in this process or in another."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

from aici_base.errors import UsageError

Outcome = Literal["text", "unreadable", "refused", "failed", "costly"]


class Rendered(NamedTuple):
    """`text`: the rendered text, or why there is none.

    unreadable   the template has errors
    refused      the template raised an error of its own
    failed       the template cannot take the variables
    costly       the template exceeded a limit
    """

    outcome: Outcome
    text: str


class Render(Protocol):
    """Renders the template `source` with variables; without variables, compiles the template only."""

    def __call__(self, source: str, variables: Mapping[str, Any] | None) -> Rendered: ...


class CostlyTemplateError(UsageError):
    """A chat template exceeded a limit of time, memory or length."""
