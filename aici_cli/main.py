"""The entry point: run a command and turn failures into exit codes.

0 done · 1 ran and failed · 2 used wrongly · 3 server unreachable · 70 a bug in aici;
ended by a signal: 130 SIGINT · 141 SIGPIPE · 143 SIGTERM
"""

import contextlib
import os
import signal
import sys
import threading
from typing import NoReturn

import typer

from aici_base.errors import AiciError, UnavailableError, UsageError
from aici_cli.output import print_error
from aici_cli.waiting import waiting

EXIT_BUG = 70

EXTRAS = {
    **dict.fromkeys(("torch", "transformers", "gguf", "safetensors"), "engine"),
    **dict.fromkeys(("numpy", "jinja2"), "kernels"),
    **dict.fromkeys(("fastapi", "uvicorn", "zmq", "msgspec", "prometheus_client", "websockets"), "server"),
    **dict.fromkeys(("ray", "zeroconf"), "cluster"),
    "ziglang": "build",
}
"""Optional packages, and the extra that installs them."""


class Ended(BaseException):
    """SIGTERM or SIGHUP. Unwinds like Ctrl-C, so that resources are closed; then the process dies of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main() -> None:
    # Die quietly when the reader closes the pipe (`| head`). Python would raise, and typer would exit with 1.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # Must precede the import of torch. Spinning OpenMP threads beside a busy process are a hundred times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.unraisablehook = _repeat_dropped_signal
    if sys.argv[1:2] != ["rt"]:  # the runtime has its own signal handlers
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:  # not SIG_DFL: nohup ignores SIGHUP
                signal.signal(number, _end)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # the entry point script resets SIGINT
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(_run())


def _end(number: int, _: object) -> NoReturn:
    raise Ended(number)


def _repeat_dropped_signal(unraisable: "sys.UnraisableHookArgs") -> None:
    """Repeat a Ctrl-C that arrived in a finalizer, where Python drops exceptions."""
    lost = unraisable.exc_value
    if isinstance(lost, KeyboardInterrupt | Ended):
        number = lost.number if isinstance(lost, Ended) else signal.SIGINT
        threading.Timer(0.05, os.kill, (os.getpid(), number)).start()
    else:
        sys.__unraisablehook__(unraisable)


def _run() -> int:
    debug = "--debug" in sys.argv or os.environ.get("AICI_DEBUG", "0") not in ("", "0", "false")
    try:
        _check_streams()
        with _loading():
            from aici_cli.app import command_tree
            from aici_cli.settings import PREFIX, read_settings

            command = command_tree()
            settings = read_settings(command)
        code = command(prog_name="aici", standalone_mode=False, auto_envvar_prefix=PREFIX, default_map=settings.values)
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
            print_error(UsageError(_usage_message(error), hint=_usage_hint(error)))
        return error.exit_code
    except KeyboardInterrupt:
        _die_of(signal.SIGINT)
    except Ended as ended:
        _die_of(ended.number)
    except OSError as error:
        if debug:
            raise
        print_error(AiciError(str(error)))
        # Drop buffered output: a second failing write at exit would change the exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return AiciError.exit_code
    except ModuleNotFoundError as error:
        if debug or error.name not in EXTRAS:
            raise
        hint = f"pip install 'aici[{EXTRAS[error.name]}]'"
        print_error(UnavailableError(f"{error.name} is not installed", hint=hint))
        return UnavailableError.exit_code
    except Exception:  # noqa: BLE001  # a bug becomes an exit code
        print("this is a bug in aici; please report it with the lines below", file=sys.stderr)
        sys.excepthook(*sys.exc_info())
        return EXIT_BUG
    if code == 128 + signal.SIGINT:  # typer returns 130 for KeyboardInterrupt
        _die_of(signal.SIGINT)
    return code or 0


def _usage_message(error: typer.TyperException) -> str:
    """Return the message without the prefix that a validator of a type puts before its own."""
    return error.format_message().replace(": Value error, ", ": ", 1)


def _loading() -> contextlib.AbstractContextManager[None]:
    """Say at once that a model is loaded: on a busy machine, the imports before the command take a second."""
    return waiting("loading ...") if sys.argv[1:2] in (["run"], ["chat"]) else contextlib.nullcontext()


def _check_streams() -> None:
    """Open closed standard streams. Python sets them to None, and the next opened file would get the descriptor."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # open until the process ends
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        raise AiciError("standard output is closed")


def _usage_hint(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    more = f"see `{context.command_path if context else 'aici'} --help`"
    if error.format_message().startswith("Option '--model' requires"):
        return f"`aici models list` lists the models here; {more}"
    if context is None:
        return more
    parameter = getattr(error, "param", None)
    source = parameter and context.get_parameter_source(parameter.name)
    if source and source.name in ("ENVIRONMENT", "DEFAULT_MAP"):
        return f"`aici config show` says where the value comes from; {more}"
    options = {option for each in context.command.params for option in each.opts}
    if "unexpected extra argument" in error.format_message() and "--model" in options:
        quoted = "put a prompt of several words in quotes; " if "--prompt" in options else ""
        return f"{quoted}name a model with --model: {context.command_path} --model MODEL; {more}"
    return more


def _die_of(number: int) -> NoReturn:
    """Die of the signal itself: a shell loop continues after `exit 130`, and stops after a death by SIGINT."""
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
