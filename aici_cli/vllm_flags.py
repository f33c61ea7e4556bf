"""The flags of `aici serve` for vLLM in the place of aici's own engine."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from aici_base.errors import UsageError

if TYPE_CHECKING:
    from aici_engine.config import VllmSettings

EngineName = Literal["native", "vllm"]
ENGINE_HELP: Final = "What computes: aici's own engine, or vLLM 0.32, with GPUs and clusters of its own."
PYTHON_HELP: Final = "With --engine vllm: the interpreter of an environment with vLLM and aici (default: this one)."
ARGS_HELP: Final = "With --engine vllm: flags of `vllm serve` in one text, such as '--tensor-parallel-size 2'."


def vllm_settings(engine: EngineName, python: Path | None, args: str | None) -> "VllmSettings | None":
    """Return the settings of vLLM, None for aici's own engine. Raises UsageError for flags that exclude each other."""
    from aici_engine.config import VllmSettings

    if engine == "native":
        for flag, value in (("--engine-python", python), ("--engine-args", args)):
            if value is not None:
                raise UsageError(f"{flag} needs --engine vllm", hint="`aici serve --help` says what each flag does")
        return None
    if python is not None and not python.is_file():
        raise UsageError(f"--engine-python {python} is no file", hint="name an interpreter: ENVIRONMENT/bin/python")
    try:
        found = shlex.split(args or "")
    except ValueError as error:
        raise UsageError(f"--engine-args cannot be read: {error}", hint="close the quotes") from None
    return VllmSettings(args=tuple(found), python=None if python is None else python.absolute())


def engine_flags(engine: EngineName, python: Path | None, args: str | None) -> list[str]:
    """Return the flags of `aici serve` for an engine. Raises UsageError for flags that exclude each other."""
    vllm_settings(engine, python, args)
    given = {"--engine": engine, "--engine-python": python, "--engine-args": args}
    return [part for flag, value in given.items() if value is not None for part in (flag, str(value))]
