"""Messages to prompt tokens, by the template that the model's folder carries."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from aici_runtime.errors import UsageError
from aici_runtime.ids import TokenId


def chat_prompt(model_dir: Path, messages: Sequence[Mapping[str, str]]) -> list[TokenId]:
    """The tokens up to where the assistant's answer begins. Each message has a `role` and a `content`."""
    from jinja2 import TemplateError
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    if not tokenizer.chat_template:
        raise UsageError(f"the model in {model_dir} has no chat template", hint="leave --chat out")
    plain = [dict(message) for message in messages]
    try:
        text = str(tokenizer.apply_chat_template(plain, add_generation_prompt=True, tokenize=False))
    except TemplateError as error:
        raise UsageError(f"the chat template in {model_dir} cannot be used: {error}") from error
    # The template writes the special tokens at the start itself.
    return [TokenId(token) for token in tokenizer.encode(text, add_special_tokens=False)]
