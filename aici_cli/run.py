"""`aici run`: one prompt, one constraint, an answer on stdout."""

import contextlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aici_base.errors import UsageError
from aici_cli.constraint import Flags, constraint_from, script_constraint, with_constraint_flags
from aici_cli.explain import explain_stream
from aici_cli.files import bounded, check_utf8
from aici_cli.model_flags import ModelFlags, with_model_flags
from aici_cli.output import print_json
from aici_cli.render import document, stream_text
from aici_cli.report import report
from aici_cli.sampling_flags import with_sampling_flags
from aici_cli.script import script_from
from aici_cli.waiting import waiting
from aici_engine.sampling_params import MAX_LOGPROBS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import aici

MAX_PROMPT_BYTES = 16 << 20
_LIKELY_TOKENS = 3
PROMPT_HINT = "give the prompt as an argument, or pipe the prompt to stdin"


@with_constraint_flags
@with_sampling_flags
@with_model_flags
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
    constraint: Any = None,
    schema_options: Any = None,
    sampling: Any = None,
    num_samples: Annotated[int, typer.Option(min=1, help="Number of answers, with seeds SEED, SEED + 1, ...")] = 1,
    model: Any = None,
    chat: Annotated[bool, typer.Option("--chat", help="Put the prompt into the model's chat template.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of streaming text.")] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Print each step: what the mask allowed and refused, forced, taken back. With --json: JSON lines.",
        ),
    ] = False,
    explain_top: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_LOGPROBS, help="With --explain: show this many likely tokens (default: 3)."),
    ] = None,
    log: Annotated[bool, typer.Option("--log", help="Print the controller's log on stderr.")] = False,
) -> None:
    """Continue a prompt, under a constraint if given, or run a script that controls the text."""
    flags: Flags = replace(constraint, schema_options=schema_options)
    opening: ModelFlags = model
    on_server = opening.server is not None
    with waiting("loading ..."):
        script = script_from(
            argument, flags.controller if flags.controller_arg is None else None, is_free=flags == Flags()
        )
        control: aici.Constraint[Any] | None
        if script is not None:
            control = script_constraint(script.guest, script.text, on_server=on_server)
        else:
            control = constraint_from(flags, on_server=on_server)
            if prompt is not None and argument is not None:
                raise UsageError("there are two prompts, an argument and --prompt")
        if sampling["logprobs"] is not None and not json:
            raise UsageError("--logprobs has nothing to be printed in", hint="add --json")
        if explain_top is not None and not explain:
            raise UsageError("--explain-top has nothing to be printed in", hint="add --explain")
        opening.check()
        for each in sampling["stop"]:
            check_utf8(each, "--stop")
        given = prompt if script is not None or argument is None else argument
        is_script = control is not None and control.is_script
        text = "" if is_script and not given else _prompt(given)  # a script needs no prompt
        options = {name: value for name, value in sampling.items() if name != "max_tokens" or value is not None}
        if explain:
            options["explain"] = _LIKELY_TOKENS if explain_top is None else explain_top
        llm = opening.open(controllers=control is not None)
    with llm:
        results = _run(llm, text, control, options, num_samples=num_samples, chat=chat, quiet=json)
        shown = document(text, llm.model, results) if json and not explain else None
    if shown is not None:
        print_json(shown)
    report(results, log=log, constrained=control is not None)


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
    """Return the results of all samples. Write their texts, or their steps, in order, each as it comes."""
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
            if "explain" in options:
                sample = number if num_samples > 1 else None
                results.append(explain_stream(stream, sample=sample, as_json=quiet))
                continue
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
