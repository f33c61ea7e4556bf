"""`aici run`: one prompt, one constraint, an answer on stdout."""

import contextlib
import gc
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aici_base.errors import UsageError
from aici_cli.constraint import Flags, constraint_from, script_constraint
from aici_cli.files import bounded, check_utf8
from aici_cli.output import print_json, say
from aici_cli.render import document, stream_text
from aici_cli.report import report
from aici_cli.sampling_flags import with_sampling_flags
from aici_cli.schema_flags import with_schema_flags
from aici_cli.script import script_from
from aici_controllers.notations.tree import GrammarSyntax
from aici_engine.config import DEFAULT_DTYPE, DEVICE_HELP, DTYPE_HELP, Device, Dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    import aici

MAX_PROMPT_BYTES = 16 << 20
PROMPT_HINT = "give the prompt as an argument, or pipe the prompt to stdin"


@with_schema_flags
@with_sampling_flags
def run(
    argument: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROMPT|SCRIPT]",
            help="The prompt, or a script: .js, .py, .json. - or nothing: the prompt is stdin.",
        ),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", help="The prompt, beside a script. - is stdin.")
    ] = None,
    regex: Annotated[str | None, typer.Option(help="The whole output matches this regular expression.")] = None,
    grammar: Annotated[
        str | None,
        typer.Option(
            help="The whole output is a sentence of this grammar: a file in Lark, GBNF or yacc's notation (.y), or a"
            " shipped grammar's name."
        ),
    ] = None,
    grammar_syntax: Annotated[
        GrammarSyntax | None,
        typer.Option(help="The notation of the grammar (default: as the extension, or else the text, has it)."),
    ] = None,
    json_schema: Annotated[
        str | None, typer.Option(help="The whole output is JSON under this schema: a file, or the schema's text.")
    ] = None,
    schema_options: Any = None,
    structural_tag: Annotated[
        str | None,
        typer.Option(
            help="The output is free text with constrained tags in it: a structural tag, as a file or as JSON text."
        ),
    ] = None,
    choice: Annotated[
        list[str], typer.Option(metavar="<str>", help="The whole output is this text; repeat for more choices.")
    ] = [],  # noqa: B006
    choices: Annotated[Path | None, typer.Option(help="The whole output is a line of this file.")] = None,
    substring: Annotated[Path | None, typer.Option(help="The whole output is a run of words of this file.")] = None,
    controller: Annotated[str | None, typer.Option(help="A controller: FILE.wasm, a name, a tag or an id.")] = None,
    controller_arg: Annotated[str | None, typer.Option(help="The controller's argument: text, or @FILE.")] = None,
    max_forks: Annotated[
        int | None,
        typer.Option(
            min=1, max=256, help="Forks that a controller may make, the first sequence included (default: 16)."
        ),
    ] = None,
    sampling: Any = None,
    num_samples: Annotated[int, typer.Option(min=1, help="Number of answers, with seeds SEED, SEED + 1, ...")] = 1,
    model: Annotated[str | None, typer.Option(help="A model's name, folder, .gguf file or hub repository.")] = None,
    server: Annotated[
        str | None, typer.Option(envvar="AICI_API_BASE", help="Run on the server at this URL; a key goes behind #key=.")
    ] = None,
    dtype: Annotated[Dtype | None, typer.Option(help=f"{DTYPE_HELP} (default: {DEFAULT_DTYPE})")] = None,
    device: Annotated[Device | None, typer.Option(help=f"{DEVICE_HELP} (default: auto)")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the model (default: torch's choice).")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Put the prompt into the model's chat template.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of streaming text.")] = False,
    log: Annotated[bool, typer.Option("--log", help="Print the controller's log on stderr.")] = False,
) -> None:
    """Continue a prompt, under a constraint if given, or run a script that controls the text."""
    flags = Flags(
        regex=regex,
        grammar=grammar,
        grammar_syntax=grammar_syntax,
        json_schema=json_schema,
        schema_options=schema_options,
        structural_tag=structural_tag,
        choice=tuple(choice),
        choices=choices,
        substring=substring,
        controller=controller,
        controller_arg=controller_arg,
    )
    script = script_from(argument, controller if controller_arg is None else None, is_free=flags == Flags())
    constraint: aici.Constraint[Any] | None
    if script is not None:
        constraint = script_constraint(script.guest, script.text, on_server=server is not None)
    else:
        constraint = constraint_from(flags, on_server=server is not None)
        if prompt is not None and argument is not None:
            raise UsageError("there are two prompts, an argument and --prompt")
    if sampling["logprobs"] is not None and not json:
        raise UsageError("--logprobs has nothing to be printed in", hint="add --json")
    engine = EngineFlags(max_forks=max_forks, dtype=dtype, device=device, threads=threads)
    if server is not None:
        engine.check_unused()
    for each in sampling["stop"]:
        check_utf8(each, "--stop")
    given = prompt if script is not None or argument is None else argument
    is_script = constraint is not None and constraint.is_script
    text = "" if is_script and not given else _prompt(given)  # a script needs no prompt
    options = {name: value for name, value in sampling.items() if name != "max_tokens" or value is not None}
    with _open(model, server, engine, controllers=constraint is not None) as llm:
        results = _run(llm, text, constraint, options, num_samples=num_samples, chat=chat, quiet=json)
        shown = document(text, llm.model, results) if json else None
    if shown is not None:
        print_json(shown)
    report(results, log=log, constrained=constraint is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFlags:
    """The flags about an engine in this process. None: the flag was not given."""

    max_forks: int | None = None
    dtype: Dtype | None = None
    device: Device | None = None
    threads: int | None = None

    def check_unused(self) -> None:
        """Raise UsageError if a flag was given: a server decides about its own engine."""
        for field in fields(self):
            if getattr(self, field.name) is not None:
                option = f"--{field.name.replace('_', '-')}"
                raise UsageError(f"{option} is not for --server", hint=f"give the server the flag: aici serve {option}")


def _open(model: str | None, server: str | None, engine: EngineFlags, *, controllers: bool) -> "aici.LLM":
    import aici

    if server is not None:
        return aici.LLM(model, server=server)

    from aici_engine.store.resolve import resolve_model

    llm = aici.LLM(
        resolve_model(model, say=say),
        dtype=engine.dtype,
        device=engine.device,
        threads=engine.threads,
        max_forks=engine.max_forks,
        controllers=controllers,
    )
    gc.freeze()  # imports made a million objects that stay; collections need not look at them
    return llm


def _run(
    llm: "aici.LLM",
    prompt: str,
    constraint: "aici.Constraint[Any] | None",
    options: dict[str, Any],
    *,
    num_samples: int,
    chat: bool,
    quiet: bool,
) -> "Sequence[aici.Result[Any]]":
    """Return the results of all samples. Write their texts in order, each as it comes, separated by newlines."""
    seed = options["seed"]
    results = []
    with contextlib.ExitStack() as stack:
        streams: list[aici.Stream[Any]] = []
        for number in range(num_samples):
            seeded = options | {"seed": None if seed is None else seed + number}
            messages = [{"role": "user", "content": prompt}]
            start = (
                llm.chat_stream(messages, constraint, **seeded) if chat else llm.stream(prompt, constraint, **seeded)
            )
            streams.append(stack.enter_context(start))
        for number, stream in enumerate(streams):
            if number and not quiet:
                print(flush=True)
            results.append(stream_text(stream, quiet=quiet))
    return results


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
