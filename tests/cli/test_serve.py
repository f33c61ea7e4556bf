"""`aici serve` refuses wrong options before anything is loaded."""

import socket
from pathlib import Path

import pytest

from tests.engine.support import write_tokenizer
from tests.support.cli import aici


@pytest.mark.parametrize(
    ("name", "said"), [("regex.wasm", "a shipped controller has this name"), ("no tag.wasm", "cannot be a tag")]
)
def test_names_in_the_folder_of_controllers(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / name).write_bytes(b"\0asm")
    done = aici("serve", "--controllers", str(tmp_path))
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--announce"], "--announce needs --cluster"),
        (["--cluster-address", "10.0.0.1:4243"], "--cluster-address needs --cluster"),
        (["--min-nodes", "2"], "--min-nodes needs --cluster or --nodes"),
        (["--memory", "1GiB"], "--memory needs --cluster, --nodes or --stages"),
        (["--cluster", "--memory", "300MiB"], "--memory 300MiB leaves nothing for layers"),
        (["--cluster", "--cluster-address", "10.0.0.1"], "--cluster-address '10.0.0.1' is not HOST:PORT"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_flags_of_a_divided_model_are_checked_before_a_model_is_looked_for(flags: list[str], said: str) -> None:
    done = aici("serve", "--model", "./nowhere", *flags)
    assert done.returncode == 2
    assert f"error: {said}" in done.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--tool-syntax", "hermess"], "the tool syntax hermess is not known"),
        (["--reasoning-parser", "thoughts"], "the reasoning parser thoughts is not known"),
    ],
)
def test_forms_of_chats_are_checked_before_a_model_is_looked_for(flags: list[str], said: str) -> None:
    done = aici("serve", "--model", "./nowhere", *flags)
    assert done.returncode == 2
    assert f"error: {said}" in done.stderr


def test_keys_and_port_are_checked_before_ray_starts(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "model.safetensors"):
        (model / name).touch()
    write_tokenizer(model)
    cluster = ["--cluster", "--cluster-address", "127.0.0.1:1", "--token-file", str(tmp_path / "token")]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        keys = ["--api-key-file", str(tmp_path / "none.toml")]
        port = ["--port", str(taken.getsockname()[1])]
        for flags, said in ((keys, "there is no file of API keys at"), (port, "cannot listen on")):
            done = aici("serve", "--model", str(model), *cluster, *flags)
            assert done.returncode == 2, done.stderr
            assert said in done.stderr
            assert "starting Ray" not in done.stderr
