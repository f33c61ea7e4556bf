"""The fields about a chat's prompt, which a chat and `/tokenize` share."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from aici_base.errors import UsageError
from aici_engine.server.protocols.chat.prompt import PromptMessage, Rendering
from aici_engine.server.protocols.openai.messages import ChatMessage, neutral_messages
from aici_engine.server.protocols.strict_body import StrictBody
from aici_engine.server.service.admission import Principal

MAX_TEMPLATE = 64 << 10
_TEMPLATES_OWN = {"messages", "tools", "add_generation_prompt"}


class ConversationFields(StrictBody):
    """`chat_template`: instead of the model's, rendered in a sandbox; a key needs the right `templates`.

    `chat_template_kwargs`: further variables of the template. `continue_final_message`: the answer continues the last
    message, the assistant's. Without `add_generation_prompt`, the prompt ends with the last message.
    """

    chat_template: Annotated[str, Field(min_length=1, max_length=MAX_TEMPLATE)] | None = None
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False

    def conversation(
        self, principal: Principal, said: Sequence[ChatMessage], *, keep_last: int | None = None, **options: Any
    ) -> tuple[list[PromptMessage], str, Rendering]:
        """Return the messages, the beginning of the answer, and how the messages are rendered.

        `options`: more variables of the template. Raises UsageError, or ForbiddenError for a template that the key may
        not send.
        """
        messages = neutral_messages(said)
        answer = ""
        if self.continue_final_message:
            if messages[-1].role != "assistant" or messages[-1].calls or self.add_generation_prompt:
                problem = "needs an assistant's message with text at the end, and no add_generation_prompt"
                raise UsageError(f"continue_final_message {problem}", param="continue_final_message")
            answer = messages.pop().content
        if self.chat_template is not None:
            principal.check_template()
        if taken := _TEMPLATES_OWN & self.chat_template_kwargs.keys():
            name = f"chat_template_kwargs.{min(taken)}"
            raise UsageError(f"{name} is a field of its own", hint="set it beside chat_template_kwargs", param=name)
        rendering = Rendering(
            source=self.chat_template,
            owner=principal.name,
            options=options | self.chat_template_kwargs,
            add_generation_prompt=self.add_generation_prompt is not False or self.continue_final_message,
            keep_last=keep_last,
        )
        return messages, answer, rendering
