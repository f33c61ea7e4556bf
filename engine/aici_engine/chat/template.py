"""Messages to a prompt, by the chat template in the model's folder."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from aici_base.errors import UsageError
from aici_base.ids import TokenId
from aici_base.tokenizer.tokens import tokenizer_file
from aici_engine.chat.rendering import CostlyTemplateError, Render
from aici_engine.chat.tool_detection import TemplateTools, template_tools
from aici_engine.model_files import read_settings, read_text, read_tokenizer


class ChatTemplate:
    """A chat template, the text `source`. Raises UsageError for a template with errors.

    `with_tools`: the model's separate template for conversations with tools, if any; else this template.
    """

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str],
        *,
        name: str,
        tool_use: str | None = None,
        render: Render | None = None,
    ) -> None:
        """`render`: renders elsewhere, and finds errors of the template when it renders first. Default: this process
        renders, and finds errors now."""
        self._name = name
        self.source = source
        self._special_tokens = dict(special_tokens)
        if render is None:
            from aici_engine.chat import jinja_rendering

            self._render = jinja_rendering.render
            self._rendered(None)
        else:
            self._render = render
        self.with_tools = self if tool_use is None else ChatTemplate(tool_use, special_tokens, name=name, render=render)

    @property
    def is_probed(self) -> bool:
        """Whether `tools` is known, so that reading it renders nothing."""
        return "tools" not in self.source or "tools" in self.__dict__

    @cached_property
    def tools(self) -> TemplateTools | None:
        """How the template shows tools and calls; None if it shows none, or calls in an unknown syntax."""
        return template_tools(self.render) if "tools" in self.source else None

    def with_source(self, source: str, name: str, render: Render | None = None) -> "ChatTemplate":
        """Return another template with the same special tokens. `render`: as for a ChatTemplate. Raises UsageError for
        a template with errors."""
        return ChatTemplate(source, self._special_tokens, name=name, render=render)

    @classmethod
    def of(cls, model_dir: Path, render: Render | None = None) -> "ChatTemplate | None":
        """Return the template of a model's folder, or `None` without one. `render`: as for a ChatTemplate. Raises
        UsageError for a bad file."""
        config = read_settings(model_dir / "tokenizer_config.json")
        file, tool_file = model_dir / "chat_template.jinja", model_dir / "additional_chat_templates" / "tool_use.jinja"
        try:
            tool_use, source = read_text(tool_file), read_text(file)
            source = config.get("chat_template") if source is None else source
            if isinstance(source, list):  # named templates
                named = {entry["name"]: entry["template"] for entry in source}
                source, tool_use = named.get("default"), tool_use or named.get("tool_use")
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"the chat template of {model_dir.name} cannot be read: {error!r}") from error
        if not source:
            return None
        if not isinstance(source, str) or not isinstance(tool_use, str | None):
            raise UsageError(f"the chat template of {model_dir.name} is no text")
        tokens = {name: _content(value) for name, value in config.items() if name.endswith("_token") and value}
        return cls(source, tokens, name=model_dir.name, tool_use=tool_use, render=render)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the text up to the beginning of the assistant's answer, special tokens written out.

        Raises UsageError, with the template's own words, for messages refused by the template, and CostlyTemplateError
        if the template exceeds a limit.
        """
        return self._rendered(
            {
                **self._special_tokens,
                **(options or {}),
                "messages": messages,
                "tools": tools,
                "add_generation_prompt": add_generation_prompt,
            }
        )

    def _rendered(self, variables: Mapping[str, Any] | None) -> str:
        outcome, text = self._render(self.source, variables)
        match outcome:
            case "text":
                return text
            case "unreadable":
                raise UsageError(f"the chat template of {self._name} cannot be read: {text}")
            case "refused":
                raise UsageError(f"the chat template of {self._name} refuses these messages: {text}")
            case "failed":
                raise UsageError(f"the chat template of {self._name} cannot take these messages: {text}")
            case "costly":
                raise CostlyTemplateError(f"the chat template of {self._name} is too costly: {text}")


def chat_prompt(model_dir: Path, messages: Sequence[Mapping[str, str]]) -> list[TokenId]:
    """Return the tokens up to the beginning of the assistant's answer. A message has a `role` and a `content`.

    Raises UsageError without a template, or for messages refused by the template.
    """
    template = ChatTemplate.of(model_dir)
    if template is None:
        raise UsageError(f"the model in {model_dir} has no chat template", hint="leave --chat out")
    # The template itself writes the special tokens at the start.
    tokenizer = read_tokenizer(tokenizer_file(str(model_dir)))
    return [TokenId(token) for token in tokenizer.encode(template.render(messages), add_special_tokens=False).ids]


def _content(value: str | dict[str, Any]) -> str:
    return value if isinstance(value, str) else str(value.get("content", ""))
