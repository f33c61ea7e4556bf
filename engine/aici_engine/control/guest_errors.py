"""Errors of guests, worded for users of the engine: the runtime's texts name flags of the runtime alone."""

import re
from typing import Final

from aici_base.errors import ControllerError

_STOP_MARK: Final = "*** aici_host_stop()"
_RUNTIME_FLAG: Final = re.compile(r" \((?:(in each of \d+ steps): )?--wasm-[a-z-]+(?:, --wasm-[a-z-]+)*\)")
_TOO_MANY_FORKS: Final = "too many forks (max="


def guest_error(text: str, *, hint: str = "") -> ControllerError:
    """Return the error of a guest from the runtime's text.

    The text loses the mark of a guest that ended itself (the mark stays in the log), and the names of flags of
    `aici rt`, which other commands do not have.
    """
    plain = _RUNTIME_FLAG.sub(lambda found: f" {found[1]}" if found[1] else "", text.removesuffix(_STOP_MARK).rstrip())
    if _TOO_MANY_FORKS in plain:
        return ControllerError(
            plain,
            hint=hint or "fork into fewer sequences",
            cli_hint="fork into fewer sequences, or raise --max-forks of `aici run` or `aici serve`",
            python_hint="fork into fewer sequences, or raise max_forks=",
        )
    return ControllerError(plain, hint=hint)
