"""`aici run`: one prompt, one constraint, an answer on stdout."""

import contextlib
import sys
import threading
from concurrent.futures import Future
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from aici_base.errors import UsageError
from aici_cli.constraint import Control, Flags, control_from, script_control
from aici_cli.files import bounded, check_utf8
from aici_cli.output import print_json, say
from aici_cli.render import Answer, document, stream_text
from aici_cli.report import report
from aici_cli.sampling_flags import with_sampling_flags
from aici_cli.script import script_from
from aici_controllers.catalog import SCRIPT_GUESTS
from aici_controllers.schema_check import Whitespace
from aici_engine.config import DEFAULT_DTYPE, DEVICE_HELP, DTYPE_HELP, Device, Dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TypeAlias

    from aici_base.ids import TokenId
    from aici_engine.config import SamplingParams
    from aici_engine.events import Event

    Samples: TypeAlias = tuple[Callable[[], str], Sequence[Iterable[Event]]]
    """The model's name, known once there is an answer, and the events of each sample."""


_T = TypeVar("_T")

DEFAULT_MAX_TOKENS = 256
DEFAULT_MAX_FORKS = 16
MAX_PROMPT_BYTES = 16 << 20
PROMPT_HINT = "give it as an argument, or pipe it to stdin"


@with_sampling_flags
def run(
    argument: Annotated[
        str | None,
        typer.Argument(metavar="[PROMPT|SCRIPT]", help="The prompt (- or none: stdin), or a script: .js, .py, .json."),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", help="The prompt, where a script is given; - is stdin.")
    ] = None,
    regex: Annotated[str | None, typer.Option(help="The whole output matches this regular expression.")] = None,
    grammar: Annotated[
        str | None, typer.Option(help="It is in the language of this grammar: FILE.y, or one that ships.")
    ] = None,
    json_schema: Annotated[
        str | None, typer.Option(help="It is JSON that this schema allows: a file, or text.")
    ] = None,
    whitespace: Annotated[
        Whitespace | None,
        typer.Option(
            help="White space in that JSON: up to one space after : and comma, none, one, or any (default: spaced)."
        ),
    ] = None,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Drop what cannot be honoured of the schema, and say what.")
    ] = False,
    choice: Annotated[
        list[str], typer.Option(metavar="<str>", help="It is this text, or that of another --choice.")
    ] = [],  # noqa: B006
    choices: Annotated[Path | None, typer.Option(help="It is one of the lines of this file.")] = None,
    substring: Annotated[Path | None, typer.Option(help="It is a run of words from this file.")] = None,
    controller: Annotated[
        str | None, typer.Option(help="A controller: FILE.wasm, or the name of one that ships.")
    ] = None,
    controller_arg: Annotated[str | None, typer.Option(help="The controller's argument: text, or @FILE.")] = None,
    max_forks: Annotated[
        int | None, typer.Option(min=1, max=256, help="Sequences that a controller may make of one (default: 16).")
    ] = None,
    sampling: Any = None,
    num_samples: Annotated[int, typer.Option(min=1, help="Answers to give, with seeds SEED, SEED + 1, ...")] = 1,
    model: Annotated[str | None, typer.Option(help="A model's name, folder, .gguf file or hub repository.")] = None,
    server: Annotated[
        str | None, typer.Option(envvar="AICI_API_BASE", help="The URL of a server that does it; a key behind #key=.")
    ] = None,
    dtype: Annotated[Dtype | None, typer.Option(help=f"{DTYPE_HELP} (default: {DEFAULT_DTYPE})")] = None,
    device: Annotated[Device | None, typer.Option(help=f"{DEVICE_HELP} (default: auto)")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the model (default: torch's choice).")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Put the prompt into the model's chat template.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of streaming text.")] = False,
    log: Annotated[bool, typer.Option("--log", help="Print what the controller logs, on stderr.")] = False,
) -> None:
    """Continue a prompt, under a constraint if one is given, or run a script that says what comes."""
    flags = Flags(
        regex=regex,
        grammar=grammar,
        json_schema=json_schema,
        whitespace=whitespace,
        lenient=lenient,
        choice=tuple(choice),
        choices=choices,
        substring=substring,
        controller=controller,
        controller_arg=controller_arg,
    )
    script = script_from(argument, controller if controller_arg is None else None, is_free=flags == Flags())
    if script is not None:
        control: Control | None = script_control(script.guest, script.text, on_server=server is not None)
    else:
        control = control_from(flags, on_server=server is not None)
        if prompt is not None and argument is not None:
            raise UsageError("there are two prompts, an argument and --prompt")
    if sampling["logprobs"] is not None and not json:
        raise UsageError("--logprobs has nothing to be printed in", hint="add --json")
    here = Here(max_forks=max_forks, dtype=dtype, device=device, threads=threads)
    if server is not None:
        here.check_unused()
    for each in sampling["stop"]:
        check_utf8(each, "--stop")
    given = prompt if script is not None or argument is None else argument
    is_script = script is not None or controller in SCRIPT_GUESTS.values()
    sampling["max_tokens"] = sampling["max_tokens"] or (None if is_script else DEFAULT_MAX_TOKENS)
    text = "" if is_script and not given else _prompt(given)  # a script begins by itself

    from aici_engine.config import SamplingParams

    seed = sampling["seed"]
    samples_params = [
        SamplingParams(**sampling | {"seed": None if seed is None else seed + number}) for number in range(num_samples)
    ]
    job = Job(text, samples_params, control=control, model=model, chat=chat)
    with _on_server(job, server) if server is not None else _here(job, here) as (name, samples):
        answers = _write(samples, quiet=json)
        shown = document(text, name(), answers)
    if json:
        print_json(shown)
    report(answers, log=log, constrained=control is not None)


@dataclass(frozen=True, slots=True)
class Job:
    prompt: str
    sampling: "Sequence[SamplingParams]"
    control: Control | None
    model: str | None
    chat: bool


@dataclass(frozen=True, slots=True)
class Here:
    """What is said of an engine in this process; None: nothing."""

    max_forks: int | None
    dtype: Dtype | None
    device: Device | None
    threads: int | None

    def check_unused(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) is not None:
                option = f"--{field.name.replace('_', '-')}"
                raise UsageError(f"{option} is not for --server", hint=f"it is the server's: aici serve {option}")


@contextlib.contextmanager
def _here(job: Job, here: Here) -> "Iterator[Samples]":
    from aici_engine.chat_template import chat_prompt
    from aici_engine.config import EngineConfig
    from aici_engine.engine import Engine, import_engine
    from aici_engine.store.resolve import resolve_model
    from aici_runtime.client import Runtime, RuntimeConfig
    from aici_runtime.config import patient

    model_dir = resolve_model(job.model, say=say)
    with contextlib.ExitStack() as stack:
        # The runtime comes up on the other core while this process imports torch.
        config = patient(RuntimeConfig(tokenizer=model_dir, max_forks=here.max_forks or DEFAULT_MAX_FORKS))
        runtime = stack.enter_context(Runtime(config)) if job.control else None
        _apart(import_engine)
        if runtime:
            runtime.wait_ready()

        from aici_engine.request import ControllerCall, Request

        engine_config = EngineConfig(
            model_dir=model_dir,
            dtype=here.dtype or DEFAULT_DTYPE,
            device=here.device or "auto",
            num_threads=here.threads,
        )
        engine = stack.enter_context(_apart(lambda: Engine(engine_config, runtime=runtime)))
        call = None
        if runtime and job.control:
            call = ControllerCall(runtime.mk_module(job.control.wasm).module_id, job.control.argument)
        source: str | list[TokenId] = job.prompt or [engine.start_token]
        if job.chat:
            source = chat_prompt(model_dir, [{"role": "user", "content": job.prompt}])
        if runtime:
            # Closed first, however this ends: a runtime that hangs would keep the engine, and Ctrl-C, waiting.
            stack.callback(runtime.close)
        handles = [engine.submit(Request(prompt=source, sampling=each, controller=call)) for each in job.sampling]
        yield lambda: model_dir.name, [handle.events() for handle in handles]


def _apart(work: "Callable[[], _T]") -> "_T":
    """In a thread of its own, while this one waits: Ctrl-C strikes here. In the middle of torch's C++, which calls
    Python, the exception would abort the process."""
    done: Future[_T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001  raised where it is waited for
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done.result()


@contextlib.contextmanager
def _on_server(job: Job, url: str) -> "Iterator[Samples]":
    from aici_cli.remote import Remote
    from aici_cli.remote_run import RemoteEvents, started

    with started(Remote(url), job.prompt, job.sampling, control=job.control, chat=job.chat, model=job.model) as runs:
        answers = [RemoteEvents(run) for run in runs]
        yield lambda: answers[0].model, answers


def _prompt(given: str | None) -> str:
    if given is not None and given != "-":
        text = given
    elif given is None and sys.stdin.isatty():
        raise UsageError("there is no prompt", hint=PROMPT_HINT)
    else:
        try:
            text = bounded(sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1), "the prompt", MAX_PROMPT_BYTES).decode()
        except UnicodeDecodeError as err:
            raise UsageError(f"the prompt on stdin is not UTF-8: {err}") from err
    if not text:
        raise UsageError("the prompt is empty", hint=PROMPT_HINT)
    check_utf8(text, "the prompt")
    return text


def _write(samples: "Sequence[Iterable[Event]]", *, quiet: bool) -> list[Answer]:
    """Their texts in order, each as it comes, parted by newlines."""
    answers = []
    for number, events in enumerate(samples):
        if number and not quiet:
            print(flush=True)
        answers.append(stream_text(events, quiet=quiet))
    return answers
