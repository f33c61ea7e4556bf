"""Programs that a user gives to `aici run` as the name of a file."""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from aici_base.errors import NotFoundError, UsageError
from aici_cli.files import MAX_TEXT_BYTES, read_text
from aici_controllers.catalog import SCRIPT_GUESTS


@dataclass(frozen=True, slots=True)
class Script:
    """A program's `text`, and `guest`, the shipped controller that runs the program."""

    guest: str
    text: str


def script_from(given: str | None, controller: str | None, *, is_free: bool) -> Script | None:
    """Return the script that the argument of `aici run` names, or None if the argument is a prompt.

    `controller` is the value of `--controller`. `is_free` tells that no flag constrains the output.
    """
    if controller is not None and controller in SCRIPT_GUESTS.values():
        if given is None:
            raise UsageError(f"--controller {controller} needs a script", hint="name its file, or - for stdin")
        return Script(controller, read_text(Path(given), "the script", MAX_TEXT_BYTES))
    if given is not None and os.path.isdir(given):
        is_model = os.path.exists(os.path.join(given, "config.json"))
        model = (
            f"if the folder is a model: aici run --model {shlex.quote(given)} PROMPT" if is_model else "name a script"
        )
        raise UsageError(
            f"{given} is a folder", hint=f"{model}; a prompt needs --prompt: --prompt {shlex.quote(given)}"
        )
    if given is None or Path(given).suffix not in SCRIPT_GUESTS:
        return None
    suffix, is_there = Path(given).suffix, os.path.exists(given)
    if is_there and not is_free:
        raise UsageError(
            f"{given} is a script, which decides by itself what may come", hint="give a prompt with --prompt"
        )
    if is_there:
        return Script(SCRIPT_GUESTS[suffix], read_text(Path(given), "the script", MAX_TEXT_BYTES))
    if len(given.split()) > 1 or not is_free:
        return None
    hint = f"check the name; a prompt that looks like a file needs --prompt: --prompt {shlex.quote(given)}"
    raise NotFoundError(f"there is no file {given}", hint=hint)
