"""The checks of a prompt: the engine makes them for every prompt, and the API process to refuse a prompt earlier."""

from collections.abc import Iterable

from aici_base.errors import UsageError


def check_prompt_len(num_tokens: int, max_len: int, *, room: int = 1, param: str = "prompt") -> None:
    """Raise UsageError for a prompt that leaves less than `room` tokens of a sequence of `max_len` tokens."""
    if num_tokens + room > max_len:
        raise UsageError(
            f"the prompt has {num_tokens} tokens: a sequence may have {max_len}, output included",
            hint=f"give a prompt of at most {max_len - room} tokens",
            param=param,
        )


def check_prompt_tokens(prompt: Iterable[int], vocab_size: int, *, param: str = "prompt") -> None:
    """Raise UsageError for a token that the model does not have."""
    for token in prompt:
        if not 0 <= token < vocab_size:
            text = "prediction" if param == "prediction" else "prompt"
            raise UsageError(f"the {text} has the token {token}: tokens are 0 to {vocab_size - 1}", param=param)
