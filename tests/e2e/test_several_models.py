"""Two models in one server: the default model, and a tiny one with random weights."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import anthropic
import openai
import pytest

from tests.engine.support import write_tiny_model
from tests.support.processes import alive, command, descendants, wait_until
from tests.support.server import Server, serving

PATIENCE_S = 120


@pytest.fixture(scope="module")
def tiny_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "random", num_heads=2)


@pytest.fixture(scope="module")
def both(tiny_dir: Path) -> Iterator[Server]:
    with serving("--model", "default", "--model", f"tiny={tiny_dir}", "--alias", "gpt-4o=tiny") as server:
        yield server


@pytest.fixture
def gpt(both: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{both.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def engine_of(server: Server, folder: str) -> int:
    """Return the engine process of the model in `folder`."""
    [pid] = [
        pid
        for pid in descendants(server.process.pid)
        if command(pid) == "aici-engine" and folder in Path(f"/proc/{pid}/cmdline").read_text()
    ]
    return pid


def test_each_model_answers_under_its_names(both: Server, gpt: openai.OpenAI) -> None:
    assert [model.id for model in gpt.models.list()] == ["smollm2-135m-instruct", "tiny"]
    answers = {
        name: gpt.completions.create(model=name, prompt="Once", max_tokens=4, temperature=0)
        for name in ("smollm2-135m-instruct", "tiny", "gpt-4o")
    }
    assert [answer.model for answer in answers.values()] == ["smollm2-135m-instruct", "tiny", "tiny"]
    assert answers["tiny"].choices[0].text == answers["gpt-4o"].choices[0].text
    # The tiny model's tokens are bytes: "Once" is four of them.
    assert [answers[name].usage.prompt_tokens for name in ("smollm2-135m-instruct", "tiny")] == [1, 4]  # type: ignore[union-attr]
    constrained = gpt.completions.create(
        model="tiny", prompt="Once", max_tokens=8, extra_body={"guided_regex": "[0-9]{3}"}
    )
    assert constrained.choices[0].text.isdigit()
    with anthropic.Anthropic(base_url=both.url, api_key="none", max_retries=0) as claude:
        message = claude.messages.create(
            model="default", max_tokens=3, messages=[{"role": "user", "content": "Say hello"}]
        )
        assert message.model == "smollm2-135m-instruct"
    with pytest.raises(openai.NotFoundError, match="this server serves smollm2-135m-instruct, tiny"):
        gpt.completions.create(model="gpt-4", prompt="Once")


def test_a_killed_engine_takes_only_its_own_streams_along(both: Server, gpt: openai.OpenAI) -> None:
    def stream(name: str, max_tokens: int) -> Iterator[str]:
        chunks = gpt.completions.create(
            model=name, prompt="Once", max_tokens=max_tokens, temperature=0, stream=True, extra_body={"min_tokens": 200}
        )
        return (chunk.choices[0].text for chunk in chunks)

    lives, dies = stream("default", 200), stream("tiny", 240)
    begun = [next(lives), next(dies)]
    os.kill(engine_of(both, "random"), signal.SIGKILL)
    with pytest.raises(openai.APIError):
        for _ in dies:
            pass
    rest = list(lives)
    assert len(begun) + len(rest) > 100
    usage = gpt.completions.create(model="default", prompt="Once", max_tokens=200, temperature=0)
    assert "".join([begun[0], *rest]).startswith(usage.choices[0].text)

    def answers() -> bool:
        try:
            return bool(gpt.completions.create(model="tiny", prompt="Once", max_tokens=1).choices)
        except openai.InternalServerError:  # 503: the new engine is starting
            return False

    assert wait_until(answers, PATIENCE_S)


def test_models_are_loaded_on_demand_and_make_room(tiny_dir: Path) -> None:
    """The files of the default model are f32, 540 MB: more than the limit, so every other model makes room. The loaded
    model takes less."""
    options = ("--load", "on-demand", "--models-memory", "400MiB", "--max-num-seqs", "4", "--max-context", "256")
    with (
        serving("--model", f"tiny={tiny_dir}", "--model", "big=default", *options) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):

        def states() -> list[str]:
            return [model.state for model in client.models.list()]  # type: ignore[attr-defined]

        def ask(name: str) -> None:
            assert client.completions.create(model=name, prompt="Once", max_tokens=1).model == name

        assert states() == ["unloaded", "unloaded"]
        assert not [pid for pid in descendants(server.process.pid) if command(pid) == "aici-engine"]
        ask("tiny")
        assert states() == ["loaded", "unloaded"]
        gone = engine_of(server, "random")
        ask("big")
        assert states() == ["unloaded", "loaded"]
        assert wait_until(lambda: not alive({gone}), PATIENCE_S)
