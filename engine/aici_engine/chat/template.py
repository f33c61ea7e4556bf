"""Messages to a prompt, by the chat template in the model's folder.

Templates are Jinja, rendered as in transformers (functions `raise_exception` and `strftime_now`, filter `tojson`, block
settings). Templates come with the weights, from any source, so Jinja's sandbox renders.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from aici_base.errors import UsageError
from aici_base.ids import TokenId
from aici_base.tokenizer.tokens import tokenizer_file
from aici_engine.chat.tool_detection import TemplateTools, template_tools
from aici_engine.model_files import read_settings, read_tokenizer


class ChatTemplate:
    """A chat template, the text `source`. Raises UsageError for a template with errors.

    `with_tools`: the template for conversations with tools, if the model has another template for them; else itself.
    """

    def __init__(
        self, source: str, special_tokens: Mapping[str, str], *, name: str, tool_use: str | None = None
    ) -> None:
        from jinja2 import TemplateError
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self._name = name
        self.source = source
        self._special_tokens = dict(special_tokens)
        self._failure = TemplateError
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise UsageError(f"the chat template of {name} cannot be read: {error}") from error
        self.with_tools = self if tool_use is None else ChatTemplate(tool_use, special_tokens, name=name)

    @cached_property
    def tools(self) -> TemplateTools | None:
        """How the template shows tools and calls; None if it shows none, or calls in an unknown syntax."""
        return template_tools(self.render) if "tools" in self.source else None

    def with_source(self, source: str, name: str) -> "ChatTemplate":
        """Return another template with the same special tokens. Raises UsageError for a template with errors."""
        return ChatTemplate(source, self._special_tokens, name=name)

    @classmethod
    def of(cls, model_dir: Path) -> "ChatTemplate | None":
        """Return the template of a model's folder, or `None` without one. Raises UsageError for a bad file."""
        config = read_settings(model_dir / "tokenizer_config.json")
        file, tool_file = model_dir / "chat_template.jinja", model_dir / "additional_chat_templates" / "tool_use.jinja"
        try:
            tool_use = tool_file.read_text(encoding="utf-8") if tool_file.is_file() else None
            source = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")
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
        return cls(source, tokens, name=model_dir.name, tool_use=tool_use)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the text up to the beginning of the assistant's answer, special tokens written out.

        Raises UsageError, with the template's own words, for messages refused by the template.
        """
        try:
            return self._template.render(
                **{
                    **self._special_tokens,
                    **(options or {}),
                    "messages": messages,
                    "tools": tools,
                    "add_generation_prompt": add_generation_prompt,
                }
            )
        except self._failure as error:
            raise UsageError(f"the chat template of {self._name} refuses these messages: {error}") from error
        except (TypeError, KeyError, AttributeError, ValueError, RecursionError, OverflowError) as error:
            raise UsageError(f"the chat template of {self._name} cannot take these messages: {error!r}") from error


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


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _content(value: str | dict[str, Any]) -> str:
    return value if isinstance(value, str) else str(value.get("content", ""))
