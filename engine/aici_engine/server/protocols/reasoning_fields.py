"""The fields of OpenAI's protocols about a model's thoughts."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from aici_base.errors import UsageError
from aici_engine.chat.settings import ChatSettings
from aici_engine.chat.thinking import thinking_options
from aici_engine.server.protocols.strict_body import StrictBody

Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ReasoningConfig(StrictBody):
    """`effort`: the chat template gets it; `none` also forbids a thought. `max_tokens`: the budget of the thought.

    `summary`, `generate_summary`, `context` and `mode` have no effect: thoughts are never summarized.
    """

    effort: Effort | None = None
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: str | None = None


class ReasoningFields(StrictBody):
    """`thinking_token_budget` (vLLM's name) or `reasoning.max_tokens`: the most tokens of a thought, after which the
    end of the thought is forced. The chat template gets `reasoning.effort` as `reasoning_effort`, `enable_thinking` and
    `thinking`; the effort `none` forbids a thought."""

    thinking_token_budget: Annotated[int, Field(ge=0)] | None = None
    reasoning: ReasoningConfig | None = None

    @property
    def effort(self) -> Effort | None:
        return None if self.reasoning is None else self.reasoning.effort

    def thinking_options(self) -> Mapping[str, Any]:
        """Return the variables of the chat template."""
        effort = self.effort
        return {} if effort is None else {"reasoning_effort": effort, **thinking_options(effort != "none")}

    def thinking_budget(self, settings: ChatSettings) -> int | None:
        """Return the budget; None without one. Raises UsageError if the server does not tell thoughts from answers."""
        field, member = "thinking_token_budget", "reasoning.max_tokens"
        of_member = None if self.reasoning is None else self.reasoning.max_tokens
        check_one(field, self.thinking_token_budget, member, of_member)
        budget = of_member if self.thinking_token_budget is None else self.thinking_token_budget
        if budget is not None and settings.reasoning_parser == "none":
            param = member if self.thinking_token_budget is None else field
            raise UsageError(
                f"{param}: this server does not tell thoughts from answers",
                hint="leave it out, or start the server without --reasoning-parser none",
                param=param,
            )
        return 0 if self.effort == "none" else budget


class ChatReasoningFields(ReasoningFields):
    """`reasoning_effort` is another name of `reasoning.effort`."""

    reasoning_effort: Effort | None = None

    @property
    def effort(self) -> Effort | None:
        other = super().effort
        check_one("reasoning_effort", self.reasoning_effort, "reasoning.effort", other)
        return self.reasoning_effort or other


def check_one(name: str, value: object, other_name: str, other: object) -> None:
    """Raise UsageError if two fields that say the same differ."""
    if value is not None and other is not None and value != other:
        raise UsageError(f"{name} and {other_name} differ", hint="leave one out", param=other_name)
