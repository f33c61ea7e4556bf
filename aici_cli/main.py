"""The entry point: one place where failures become exit codes.

0 done · 1 ran and failed · 2 used wrongly · 3 server unreachable · 70 a bug in aici;
ended by a signal: 130 SIGINT · 141 SIGPIPE · 143 SIGTERM
"""

import os
import signal
import sys
from typing import NoReturn

import typer

from aici_cli.output import print_error
from aici_runtime.errors import AiciError, UnavailableError, UsageError

EXIT_BUG = 70

EXTRAS = {"torch": "engine", "transformers": "engine", "gguf": "engine", "numpy": "engine", "ziglang": "build"}
"""Packages that aici can do without until a command needs them, and the extra that brings each."""


def main() -> None:
    # A closed pipe downstream (`| head`) ends us quietly; Python would raise, and typer would turn that into exit 1.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # Before torch is imported: OpenMP threads that spin beside a busy neighbour are a hundred times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(_run())


def _run() -> int:
    debug = "--debug" in sys.argv
    try:
        from aici_cli.app import app

        code = app(prog_name="aici", standalone_mode=False)
    except AiciError as error:
        if debug:
            raise
        print_error(error)
        return error.exit_code
    except typer.TyperException as error:
        print_error(UsageError(error.format_message(), hint=_usage_hint(error)))
        return error.exit_code
    except KeyboardInterrupt:
        _die_of(signal.SIGINT)
    except ModuleNotFoundError as error:
        if debug or error.name not in EXTRAS:
            raise
        hint = f"pip install 'aici[{EXTRAS[error.name]}]'"
        print_error(UnavailableError(f"{error.name} is not installed", hint=hint))
        return UnavailableError.exit_code
    except Exception:  # noqa: BLE001  # the one place where a bug becomes an exit code
        print("this is a bug in aici; please report it with the lines below", file=sys.stderr)
        sys.excepthook(*sys.exc_info())
        return EXIT_BUG
    if code == 128 + signal.SIGINT:  # typer's word for KeyboardInterrupt
        _die_of(signal.SIGINT)
    return code or 0


def _usage_hint(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return f"`{context.command_path} --help` shows the usage" if context else "`aici --help` shows the usage"


def _die_of(number: int) -> NoReturn:
    """End by the signal itself: a shell loop goes on after `exit 130`, and stops after a death by SIGINT."""
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
