"""Names of tokenizers resolve to local files, or to an error with the places tried."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from aici_base.errors import NotFoundError, UsageError
from aici_base.tokenizer import tokenizer_sources
from aici_base.tokenizer.tokens import read_vocabulary
from aici_runtime.tokenizer import vocabulary
from tests.runtime.support import tokenizer


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for all caches, set through the environment."""
    monkeypatch.setenv("AICI_CACHE_DIR", str(tmp_path / "aici"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    return tmp_path


def cached(folder: Path, repo: str, *, ref: str = "main", commit: str = "c0ffee") -> Path:
    """Write files in the layout of huggingface_hub."""
    base = folder / f"models--{repo.replace('/', '--')}"
    (base / "refs" / ref).parent.mkdir(parents=True)
    (base / "refs" / ref).write_text(commit)
    return tokenizer.byte_level(base / "snapshots" / commit) / "tokenizer.json"


def find(name: str, places: Path) -> Path:
    return tokenizer_sources.find(name, places / "cache").tokenizer_json


def test_a_folder_and_a_file(places: Path) -> None:
    folder = tokenizer.byte_level(places / "mine")
    assert find(str(folder), places) == find(str(folder / "tokenizer.json"), places) == folder / "tokenizer.json"


def test_a_model_that_aici_keeps(places: Path) -> None:
    folder = tokenizer.byte_level(places / "aici" / "models" / "mine")
    assert find("mine", places) == folder / "tokenizer.json"


@pytest.mark.parametrize(
    ("name", "repo", "ref"),
    [
        ("user/model", "user/model", "main"),
        ("user/model@v1", "user/model", "v1"),
        ("gpt2", "gpt2", "main"),
        ("llama", "codellama/CodeLlama-34b-Instruct-hf", "main"),
        ("orca", "microsoft/Orca-2-13b", "refs/pr/23"),
    ],
)
def test_a_repository_in_the_cache(places: Path, name: str, repo: str, ref: str) -> None:
    file = cached(places / "hf" / "hub", repo, ref=ref)
    assert find(name, places) == file


def test_a_commit(places: Path) -> None:
    file = cached(places / "hf" / "hub", "user/model", commit="1234abcd")
    assert find("user/model@1234abcd", places) == file


def test_the_cache_of_hugging_face_can_be_elsewhere(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(places / "hub"))
    file = cached(places / "hub", "u/m")
    assert find("u/m", places) == file
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.delenv("HF_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(places / "xdg"))
    file = cached(places / "xdg" / "huggingface" / "hub", "u/m")
    assert find("u/m", places) == file


@pytest.mark.parametrize("name", ["llama", "nobody/nothing@v7", "nothing"])
def test_what_is_nowhere(places: Path, name: str) -> None:
    with pytest.raises(NotFoundError, match=f"no tokenizer {name}; searched {places}/aici/models/{name}") as caught:
        find(name, places)
    assert f"{places}/hf/hub/models--" in caught.value.message
    assert "on this machine" in caught.value.hint


@pytest.mark.parametrize("name", ["/no/such", "./such", "~/such"])
def test_a_path_is_not_taken_for_a_repository(places: Path, name: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        find(name, places)
    assert caught.value.message == f"no tokenizer at {name}"


@pytest.mark.parametrize("size", [tokenizer.BYTE_LEVEL_SIZE, tokenizer.BYTE_LEVEL_SIZE + 200])
def test_logits_size(places: Path, size: int) -> None:
    folder = tokenizer.byte_level(places / "mine")
    loaded = vocabulary.load(str(folder), places, logits_size=size)
    assert (loaded.vocab_size, loaded.eos_token) == (size, tokenizer.BYTE_LEVEL_EOS)
    before, after = (
        read_vocabulary(file.read_bytes()).token_bytes for file in (folder / "tokenizer.json", loaded.tokenizer_json)
    )
    assert after == before + [b""] * (size - tokenizer.BYTE_LEVEL_SIZE)
    if size > len(before):
        assert '"<AddedToken_199>"' in loaded.tokenizer_json.read_text()


@pytest.mark.parametrize("size", [1, tokenizer.BYTE_LEVEL_SIZE - 1, tokenizer.BYTE_LEVEL_SIZE + 201])
def test_logits_sizes_that_do_not_fit(places: Path, size: int) -> None:
    folder = tokenizer.byte_level(places / "mine")
    with pytest.raises(UsageError, match=f"--logits-size {size} does not fit") as caught:
        tokenizer_sources.find(str(folder), places, logits_size=size)
    assert f"from {tokenizer.BYTE_LEVEL_SIZE} to {tokenizer.BYTE_LEVEL_SIZE + 200}" in caught.value.hint


def test_a_hub_that_cannot_be_reached_is_given_up_at_once(places: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # a port without a listener
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        environment = {"HF_ENDPOINT": address, "HF_HUB_OFFLINE": "0", "PATH": os.environ["PATH"]}
        code = "import sys; from aici_runtime.main import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", code, "--server", "--tokenizer=u/m"]
        environment |= {
            "AICI_CACHE_DIR": str(places),
            "HF_HOME": str(places),
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        }
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no tokenizer u/m; ")
    assert f"{address} cannot be reached: Connection refused" in done.stderr


def test_the_runtime_can_do_without_the_hubs_client(places: Path) -> None:
    """huggingface_hub is not installed with aici alone."""
    code = """
import sys
sys.modules["huggingface_hub"] = None
from aici_runtime.main import main
sys.exit(main(["--server", "--tokenizer=gpt2"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "huggingface_hub is not installed" in done.stderr
