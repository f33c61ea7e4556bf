"""`--model`, `--name` and `--alias` of `aici serve`."""

from pathlib import Path

import pytest

from aici_base.errors import UsageError
from aici_cli.served_models import named_models
from aici_engine.config import EngineConfig
from aici_engine.server.config import ModelConfig, ServerConfig


@pytest.mark.parametrize(
    ("models", "name", "aliases", "found"),
    [
        ([], None, [], [(None, None, ())]),
        ([], "it", ["gpt-4o"], [("it", None, ("gpt-4o",))]),
        (["org/m"], None, ["x", "y"], [(None, "org/m", ("x", "y"))]),
        (["a=org/m", "b=./m.gguf"], None, ["x=b", "y"], [("a", "org/m", ("y",)), ("b", "./m.gguf", ("x",))]),
        (["org/m", "b=m"], None, ["x=org/m"], [(None, "org/m", ("x",)), ("b", "m", ())]),
        (["./a=b/c"], None, [], [(None, "./a=b/c", ())]),
    ],
)
def test_names(
    models: list[str], name: str | None, aliases: list[str], found: list[tuple[str | None, str | None, tuple[str, ...]]]
) -> None:
    made = named_models(models, name=name, aliases=aliases)
    assert [(each.name, each.model, each.aliases) for each in made] == found


@pytest.mark.parametrize(
    ("models", "name", "aliases", "said"),
    [
        (["a", "b"], "x", [], "--name is for one model"),
        (["a=b"], "x", [], "--name is for one model"),
        (["a=b"], None, ["x=c"], "no --model is called c"),
        (["a="], None, [], "a name or a model is missing"),
        (["=b"], None, [], "a name or a model is missing"),
    ],
)
def test_what_is_refused(models: list[str], name: str | None, aliases: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        named_models(models, name=name, aliases=aliases)


def test_a_path_with_an_equals_sign_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a=b").mkdir()
    monkeypatch.chdir(tmp_path)
    assert [each.model for each in named_models(["a=b"])] == ["a=b"]


def test_a_server_refuses_one_name_for_two_models(tmp_path: Path) -> None:
    engine = EngineConfig(model_dir=tmp_path)
    one = ModelConfig(engine=engine, name="a", aliases=("a", "x"))
    assert ServerConfig(models=(one, ModelConfig(engine=engine, name="b"))).models[0] is one
    for other in (ModelConfig(engine=engine, name="a"), ModelConfig(engine=engine, name="b", aliases=("x",))):
        with pytest.raises(UsageError, match=r"two models are called [ax]"):
            ServerConfig(models=(one, other))
    divided = EngineConfig(model_dir=tmp_path, stages=("tcp://h:1#k",))
    with pytest.raises(UsageError, match="the only model of its server"):
        ServerConfig(models=(one, ModelConfig(engine=divided, name="b")))
