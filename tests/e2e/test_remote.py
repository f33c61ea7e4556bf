"""`aici run --server` and `aici ctrl` on a real server: the same results as without a server."""

import json
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aici_controllers import constraints
from aici_controllers.catalog import guest_path
from aici_engine.config import SamplingParams
from aici_engine.engine import Engine
from aici_engine.request import ControllerCall, Request
from aici_runtime.client import Runtime
from tests.support.cli import AICI, aici
from tests.support.guests import build_test_guest
from tests.support.processes import wait_until
from tests.support.server import Server

pytestmark = pytest.mark.e2e

PROMPT = "An answer: "


def document(server: Server, *args: str) -> dict[str, Any]:
    done = aici("run", "--server", server.url, "--json", *args)
    assert done.returncode == 0, done.stderr
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def at_home(engine: Engine, runtime: Runtime, wasm: Path | None, argument: str, max_tokens: int) -> dict[str, Any]:
    """Return the output of `aici run --json` for the same run without a server."""
    from aici.constraints import UNCONSTRAINED
    from aici.results import Collector
    from aici_cli.render import document

    call = None if wasm is None else ControllerCall(runtime.mk_module(wasm.read_bytes()).module_id, argument)
    sampling = SamplingParams(temperature=0.0, top_k=0, max_tokens=max_tokens)
    collector = Collector(PROMPT, UNCONSTRAINED)
    for event in engine.submit(Request(prompt=PROMPT, sampling=sampling, controller=call)).events():
        collector.add(event)
    return document(PROMPT, "", [collector.ended])


SCHEMA = '{"type":"object","properties":{"size":{"enum":["big","small"]}},"required":["size"]}'
KINDS: dict[str, tuple[Sequence[str], constraints.Constraint]] = {
    "regex": (["--regex", "[A-Z][a-z]{2,9}"], constraints.regex("[A-Z][a-z]{2,9}")),
    "json_schema": (["--json-schema", SCHEMA], constraints.json_schema(SCHEMA)),
    "choices": (["--choice", "red", "--choice", "dark green"], constraints.choices(["red", "dark green"])),
}


@pytest.mark.parametrize("kind", KINDS)
def test_constraints_are_the_same_without_a_server(server: Server, engine: Engine, runtime: Runtime, kind: str) -> None:
    flags, constraint = KINDS[kind]
    there = document(server, *flags, "--max-tokens", "40", PROMPT)
    here = at_home(engine, runtime, guest_path(constraint.guest), constraint.argument, 40)
    assert there["text"]
    for key in ("text", "tokens", "finish_reason", "usage", "logs", "variables", "error"):
        assert there[key] == here[key], key
    assert there.keys() == here.keys()


def test_files_as_constraints(server: Server, engine: Engine, runtime: Runtime, tmp_path: Path) -> None:
    source = "the quick brown fox"
    (tmp_path / "source").write_text(source + "\n")
    there = document(server, "--substring", str(tmp_path / "source"), PROMPT)
    assert there["text"] == at_home(engine, runtime, guest_path("substring"), f'{{"text": "{source}"}}', 256)["text"]
    text = '%start s\n%%\ns: "yes" | "no" ", " "because";\n'
    (tmp_path / "yes.y").write_text(text)
    there = document(server, "--grammar", str(tmp_path / "yes.y"), PROMPT)
    assert there["text"] == at_home(engine, runtime, guest_path("grammar"), text, 256)["text"]


def test_a_controller_file_is_uploaded_and_backtracks_the_same(
    server: Server, engine: Engine, runtime: Runtime
) -> None:
    wasm = build_test_guest("splice")
    there = document(server, "--controller", str(wasm), "--controller-arg", "forty-two", "--max-tokens", "40", PROMPT)
    here = at_home(engine, runtime, wasm, "forty-two", 40)
    for key in ("text", "tokens", "finish_reason", "usage"):
        assert there[key] == here[key], key
    assert there["text"] == "forty-twoforty-two"


def test_plain_text_streams_and_stops(server: Server, engine: Engine) -> None:
    whole = engine.generate(PROMPT, temperature=0.0, top_k=0, max_tokens=30)
    done = aici("run", "--server", server.url, "--max-tokens", "30", PROMPT)
    assert (done.returncode, done.stdout, done.stderr) == (0, whole, "")
    stop = whole[8:12]
    out = document(server, "--max-tokens", "30", "--stop", stop, "--logprobs", "1", PROMPT)
    assert (out["text"], out["stop"], out["finish_reason"]) == (whole[: whole.index(stop)], stop, "stop")
    assert out["tokens"][0]["top_logprobs"][0]["id"] == out["tokens"][0]["id"]


def test_samples_and_chat(server: Server) -> None:
    args = ["--temperature", "1.5", "--seed", "7", "--num-samples", "3", "--regex", "[a-z]{12,20}", "--chat", "A word"]
    first, again = document(server, *args), document(server, *args)
    texts = [sample["text"] for sample in first["samples"]]
    assert len(set(texts)) > 1
    assert texts == [sample["text"] for sample in again["samples"]]


def test_from_upload_to_removal(server: Server, tmp_path: Path) -> None:
    url = {"AICI_API_BASE": f"{server.url}/v1/#key=not-asked-for"}
    done = aici("ctrl", "upload", str(build_test_guest("vars")), "--tag", "cli-vars", env=url)
    assert done.returncode == 0, done.stderr
    module_id = done.stdout.strip()
    assert aici("ctrl", "tag", "cli-vars", "cli-other", env=url).stdout.startswith("cli-other")
    tags = {tag["tag"]: tag["module_id"] for tag in json.loads(aici("ctrl", "tags", "--json", env=url).stdout)}
    assert tags["cli-vars"] == tags["cli-other"] == module_id
    listed = {module["module_id"]: module for module in json.loads(aici("ctrl", "list", "--json", env=url).stdout)}
    assert listed[module_id]["tags"] == ["cli-other", "cli-vars"]
    ran = aici("run", "--controller", "cli-other", "--log", "x", env=url)
    assert ran.returncode == 0
    assert ran.stderr.startswith("missing\nx=one\n")
    here = {"AICI_STORE_DIR": str(tmp_path)}
    assert aici("ctrl", "pull", "cli-other", "--tag", "pulled", env=url | here).stdout.strip() == module_id
    there = {tag["tag"]: tag["module_id"] for tag in json.loads(aici("ctrl", "tags", "--json", env=here).stdout)}
    assert there["pulled"] == module_id
    assert aici("ctrl", "rm", module_id, env=url).returncode == 2
    assert aici("ctrl", "rm", "cli-vars", module_id, "--force", env=url).stdout.split() == ["cli-vars", module_id]
    gone = aici("run", "--controller", "cli-other", "x", env=url)
    assert "tag cli-other not found" in gone.stderr


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["run", "--controller", "nobody", "x"], 2, "tag nobody not found"),
        (["run", "--model", "another", "x"], 2, "another is not served here"),
        (["run", "--max-tokens", "9000", "x"], 2, "maximum context length is 8192"),
        (["run", "--controller", str(build_test_guest("trap")), "x"], 1, "unreachable"),
        (["run", "--regex", "a(", "x"], 2, "missing ')'"),
        (["ctrl", "tag", "regex", "no tag"], 2, "tag name not identifier"),
        (["ctrl", "tag", "nobody", "it"], 2, "no controller is called nobody"),
        (["ctrl", "tag", "choices", "regex"], 2, "regex is a name of aici's own"),
    ],
)
def test_what_the_server_refuses(server: Server, args: list[str], code: int, said: str) -> None:
    done = aici(*args, env={"AICI_API_BASE": server.url})
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_the_work_on_the_server(server: Server) -> None:
    command = [*AICI, "run", "--server", server.url, "--max-tokens", "8000", "--regex", "(a|b)*", "Once"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (-signal.SIGINT, b"")
    assert wait_until(lambda: server.stats()["active_requests"] == 0, 20)
    assert server.stats()["cache_usage"] == 0.0
