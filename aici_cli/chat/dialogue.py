"""A conversation, and the file that keeps one."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from aici_base.cache_files import write_atomically
from aici_base.errors import UsageError
from aici_cli.files import MAX_TEXT_BYTES, read_text

Message: TypeAlias = dict[str, str]
"""A message of OpenAI's API: `role` (`system`, `user` or `assistant`) and `content`."""


def message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


@dataclass(slots=True)
class Dialogue:
    """The system prompt, empty for none, and the messages after it."""

    system: str = ""
    turns: Sequence[Message] = ()

    def messages(self) -> list[Message]:
        return [message("system", self.system)] * bool(self.system) + list(self.turns)

    def question(self) -> Sequence[Message]:
        """Return the turns up to the last message of the user. Raise UsageError if there is none."""
        for end in range(len(self.turns), 0, -1):
            if self.turns[end - 1]["role"] == "user":
                return self.turns[:end]
        raise UsageError("there is no message to answer yet")


def save(dialogue: Dialogue, path: Path) -> None:
    """Write a dialogue as JSON. Raise UsageError instead of replacing a file that is no saved conversation."""
    path = path.expanduser()
    if path.exists():
        try:
            load(path)
        except UsageError as error:
            raise UsageError(f"{path} is there, and no saved chat", hint="give another name") from error
    document = json.dumps({"messages": dialogue.messages()}, indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, document.encode(), hint="give a file in a folder that can be written")


def load(path: Path) -> Dialogue:
    """Read a file that `save` wrote, or a list of messages. Raise UsageError for anything else."""
    try:
        document = json.loads(read_text(path, "the chat", MAX_TEXT_BYTES))
        given = document["messages"] if isinstance(document, dict) else document
        messages = [message(each["role"], each["content"]) for each in given]
        system = messages.pop(0)["content"] if messages and messages[0]["role"] == "system" else ""
        if not all(each["role"] in ("user", "assistant") and isinstance(each["content"], str) for each in messages):
            raise ValueError("roles are user and assistant, and contents are texts")
        if not isinstance(system, str):
            raise TypeError("the system prompt is no text")
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{path} is no saved chat: {error!r}", hint="/save writes one") from error
    return Dialogue(system, messages)
