"""`--model`, `--name`, `--alias` and `--lora` of `aici serve`."""

from pathlib import Path

import pytest
import torch

from aici_base.errors import UsageError
from aici_cli.served_models import adapters, named_models
from aici_engine.config import EngineConfig
from aici_engine.server.api.models import make_models
from aici_engine.server.config import ModelConfig, ServerConfig
from tests.support.lora import write_lora


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


def test_adapters_are_folders_by_name(tmp_path: Path) -> None:
    folders = [write_lora(tmp_path / each, {"a": (torch.zeros(1, 2), torch.zeros(2, 1))}) for each in "xy"]
    assert adapters([f"one={folders[0]}", f"two={folders[1]}"]) == {"one": folders[0], "two": folders[1]}
    for texts, said in (
        (["one"], "a name or a folder is missing"),
        (["=x"], "a name or a folder is missing"),
        ([f"{folders[0]}=x"], "a name or a folder is missing"),
        ([f"one={folders[0]}", f"one={folders[1]}"], "two adapters are called one"),
        ([f"one={tmp_path}"], "adapter_config.json is missing"),
    ):
        with pytest.raises(UsageError, match=said):
            adapters(texts)


def test_a_model_with_an_adapter_is_a_model_of_its_own(tmp_path: Path) -> None:
    """The folder of the model names the model without the adapter."""
    base = EngineConfig(model_dir=tmp_path / "model")
    adapted = EngineConfig(model_dir=tmp_path / "model", lora=tmp_path / "lora")
    models = make_models(
        ServerConfig(models=(ModelConfig(engine=base, name="plain"), ModelConfig(engine=adapted, name="tuned")))
    )
    assert [(each.name, each.parent) for each in models.all] == [("plain", None), ("tuned", "plain")]
    assert models.find(str(tmp_path / "model")).name == "plain"
    assert models.find("tuned").name == models.find(str(tmp_path / "lora")).name == "tuned"


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
    drafting = EngineConfig(model_dir=tmp_path, draft_model=tmp_path)
    with pytest.raises(UsageError, match="guesses for one model"):
        ServerConfig(models=(ModelConfig(engine=drafting, name="a"), ModelConfig(engine=drafting, name="b")))
    divided = EngineConfig(model_dir=tmp_path, stages=("tcp://h:1#k",))
    with pytest.raises(UsageError, match="the only model of its server"):
        ServerConfig(models=(one, ModelConfig(engine=divided, name="b")))
