"""One place where failures become exit codes.

0 done · 1 ran and failed · 2 used wrongly · 3 server unreachable · 70 a bug in aici;
ended by a signal: 130 SIGINT · 141 SIGPIPE · 143 SIGTERM
"""

import os
import signal
import sys
import threading
from typing import NoReturn

import typer

from aici_base.errors import AiciError, UnavailableError, UsageError
from aici_cli.output import print_error

EXIT_BUG = 70

EXTRAS = {
    **dict.fromkeys(("torch", "transformers", "gguf", "numpy", "jinja2"), "engine"),
    **dict.fromkeys(("fastapi", "uvicorn", "zmq", "msgspec", "prometheus_client", "websockets"), "server"),
    "ziglang": "build",
}
"""Packages that aici can do without until a command needs them, and the extra that brings each."""


class Ended(BaseException):
    """SIGTERM or SIGHUP. Unwinds as Ctrl-C does, so that what is open is closed; then the signal itself ends us."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main() -> None:
    # A closed pipe downstream (`| head`) ends us quietly; Python would raise, and typer would turn that into exit 1.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # Before torch is imported: OpenMP threads that spin beside a busy neighbour are a hundred times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.unraisablehook = _not_lost
    if sys.argv[1:2] != ["rt"]:  # which has signals of its own
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
                signal.signal(number, _end)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # as the entry point leaves it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(_run())


def _end(number: int, _: object) -> NoReturn:
    raise Ended(number)


def _not_lost(unraisable: "sys.UnraisableHookArgs") -> None:
    """Ctrl-C that struck in a finalizer, where Python drops exceptions, strikes again a moment later."""
    lost = unraisable.exc_value
    if isinstance(lost, KeyboardInterrupt | Ended):
        number = lost.number if isinstance(lost, Ended) else signal.SIGINT
        threading.Timer(0.05, os.kill, (os.getpid(), number)).start()
    else:
        sys.__unraisablehook__(unraisable)


def _run() -> int:
    debug = "--debug" in sys.argv
    try:
        _check_streams()
        from aici_cli.app import app

        code = app(prog_name="aici", standalone_mode=False)
        sys.stdout.flush()
    except AiciError as error:
        if debug:
            raise
        print_error(error)
        return error.exit_code
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), file=sys.stderr)
        else:
            print_error(UsageError(error.format_message(), hint=_usage_hint(error)))
        return error.exit_code
    except KeyboardInterrupt:
        _die_of(signal.SIGINT)
    except Ended as ended:
        _die_of(ended.number)
    except OSError as error:
        if debug:
            raise
        print_error(AiciError(str(error)))
        # What could not be written must not be tried again at the end, which would be another exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return AiciError.exit_code
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


def _check_streams() -> None:
    """A closed standard stream is None in Python; its number would go to the next file opened."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # for the rest of the process
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        raise AiciError("standard output is closed: there is nowhere to put the answer")


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
