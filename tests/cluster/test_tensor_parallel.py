"""A stage in several processes gives the tokens of a stage in one, and ends with any of its processes."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest
import torch

from aici_base.errors import UnavailableError, UsageError
from aici_base.ids import SeqId, TokenId
from aici_engine.cache.ids import PageId
from aici_engine.cluster.driver import make_driver
from aici_engine.cluster.stage_loader import StageLoader
from aici_engine.cluster.tensor_group import TensorParallelStage
from aici_engine.cluster.token import ClusterToken
from aici_engine.config import EngineConfig
from aici_engine.executor import Executor
from aici_engine.local_executor import LocalExecutor
from aici_engine.model.compute_device import ComputeDevice
from aici_engine.model.load_stage import load_stage
from aici_engine.model.stage_model import StageModel
from aici_engine.model.stage_range import LayerRange
from aici_engine.model.tensor_source import FolderSource
from aici_engine.model.tensor_store import TensorStore
from aici_engine.native.backend import make_model
from aici_engine.native.stage_backend import StageSpec
from aici_engine.step_input import Chunk, PageCopy, StepInput
from aici_runtime import process
from tests.cluster.tensor_parallel_tokens import PROMPT, greedy_tokens
from tests.engine.model.test_models import FAMILIES, build
from tests.engine.support import write_tokenizer
from tests.support.stage_threads import stage_thread

PAGE_SIZE = 16
SPEC = StageSpec("float32", "torch", "cpu", PAGE_SIZE, 1)
WHOLE = LayerRange(0, 4, embedding=True, head=True)
UNABLE = {"gpt2": "no tensor parallel plan", "gpt_oss": "no tensor parallel plan", "mixtral": "moe_tp_experts"}
ODD = {"phi3-partial", "llama-mha", "llama-head-dim", "qwen2-window", "phi3-window"}
"""The rotation of the first is for four heads of 16; the others divide as their family does."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write(tmp_path_factory.mktemp("models"), "llama")
    write_tokenizer(folder)
    return folder


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(num_threads)


def write(parent: Path, family: str) -> Path:
    """Write a model with 8 heads and 4 key heads, or 2 key heads where the family has fewer."""
    build(family, num_attention_heads=8, num_key_value_heads=4).save_pretrained(parent / family)
    return parent / family


def alone(folder: Path) -> list[int]:
    source = FolderSource(folder)
    layers = int(source.config.get("text_config", source.config).get("num_hidden_layers", 4))
    return greedy_tokens(load_stage(source, LayerRange(0, layers, embedding=True, head=True), dtype="float32"))


@pytest.mark.e2e
def test_two_processes_generate_the_tokens_of_one_for_every_family(tmp_path: Path) -> None:
    folders = [write(tmp_path, family) for family in FAMILIES if family not in UNABLE and family not in ODD]
    command = [sys.executable, "-m", "tests.cluster.tensor_parallel_tokens"]
    rest = ["2", str(tmp_path / "store"), *map(str, folders)]
    with subprocess.Popen([*command, "1", *rest], stdout=subprocess.DEVNULL) as other:
        done = subprocess.run([*command, "0", *rest], stdout=subprocess.PIPE, check=True)
        assert other.wait() == 0
    assert json.loads(done.stdout) == {folder.name: alone(folder) for folder in folders}


@pytest.mark.parametrize("family", UNABLE)
def test_a_family_without_a_plan_is_refused_by_name(family: str, tmp_path: Path) -> None:
    source = FolderSource(write(tmp_path, family))
    with pytest.raises(UsageError, match=f"cannot be divided over processes: .*{UNABLE[family]}"):
        TensorParallelStage(source, WHOLE, SPEC, num_ranks=2)


def test_what_cannot_be_divided_is_refused_by_name(folder: Path) -> None:
    source = FolderSource(folder)
    with pytest.raises(UsageError, match="has 8 heads, which 3 processes cannot share") as error:
        TensorParallelStage(source, WHOLE, SPEC, num_ranks=3)
    assert error.value.hint == "use 2 or 4 processes"
    with pytest.raises(UsageError, match="has 4 key heads, which 8 processes"):
        TensorParallelStage(source, WHOLE, SPEC, num_ranks=8)
    with pytest.raises(UsageError, match="the native kernels run in one process"):
        TensorParallelStage(source, WHOLE, StageSpec("float32", "native", "cpu", PAGE_SIZE), num_ranks=2)
    with pytest.raises(UsageError, match="int8 weights cannot be divided"):
        TensorParallelStage(source, WHOLE, StageSpec("int8", "torch", "cpu", PAGE_SIZE), num_ranks=2)


def test_pages_are_copied_in_all_processes_and_a_death_ends_the_group(folder: Path) -> None:
    source, died = FolderSource(folder), threading.Event()
    group = TensorParallelStage(source, WHOLE, SPEC, num_ranks=2, on_death=died.set)
    try:
        assert group.layers[0].num_kv_heads == 2
        single = load_stage(source, WHOLE, dtype="float32")
        assert group.token_bytes == single.token_bytes
        for _ in range(2):  # a second epoch
            torch.testing.assert_close(forked_logits(group), forked_logits(single), rtol=1e-4, atol=1e-4)
        assert not died.is_set()
        [pid] = group.pids
        os.kill(pid, signal.SIGKILL)
        assert died.wait(10)
    finally:
        group.close()


def forked_logits(stage: StageModel) -> torch.Tensor:
    """Return the logits of a sequence and its fork, which goes on in a copy of the page."""
    storage = stage.make_storage(num_pages=4, page_size=PAGE_SIZE)
    stage.run(storage, [Chunk(SeqId(1), PROMPT, 0, [PageId(3)], 0)], None)
    storage.copy_page(PageId(3), PageId(0))
    both = [
        Chunk(SeqId(1), [TokenId(7)], len(PROMPT), [PageId(3)], 1),
        Chunk(SeqId(2), [TokenId(8), TokenId(9)], len(PROMPT), [PageId(0)], 2),
    ]
    return stage.run(storage, both, None).clone()


def test_tensors_that_are_missing_end_the_load_with_a_typed_error(folder: Path) -> None:
    source = FolderSource(folder)
    del source.tensors["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(UsageError, match="1 tensors are missing"):
        TensorParallelStage(source, WHOLE, SPEC, num_ranks=2)


def test_a_process_that_cannot_start_ends_the_load_with_a_typed_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UnavailableError, match="the stage's process of rank 1 ended while it loaded"):
        TensorParallelStage(FolderSource(folder), WHOLE, SPEC, num_ranks=2)


class StageCommand:
    """`aici stage --tp 2` as a process."""

    def __init__(self, folder: Path, token_file: Path) -> None:
        command = [sys.executable, "-m", "aici_cli", "stage", "--tp", "2", "--threads", "1", "--model", str(folder)]
        self.process = subprocess.Popen([*command, "--token-file", str(token_file)], stdout=subprocess.PIPE, text=True)
        output: IO[str] | None = self.process.stdout
        assert output is not None
        self.address = output.readline().strip()

    @property
    def children(self) -> list[int]:
        pid = self.process.pid
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(20)


@pytest.mark.e2e
def test_pipelines_of_divided_stages_generate_the_same_tokens(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AICI_NATIVE", "off")
    monkeypatch.setenv("AICI_CACHE_DIR", str(tmp_path / "cache"))
    compute = ComputeDevice("cpu", PAGE_SIZE)
    token = ClusterToken.read_or_create(tmp_path / "token")[0]
    config = EngineConfig(model_dir=folder, dtype="float32", num_pages=16)

    def staged(addresses: list[str], cuts: tuple[int, ...]) -> list[int]:
        token_file = tmp_path / "token"
        driver = make_driver(replace(config, stages=tuple(addresses), cuts=cuts, token_file=token_file), compute)
        try:
            return run(driver)
        finally:
            driver.close()

    wanted = run(LocalExecutor(make_model(config, compute), num_pages=16, page_size=PAGE_SIZE))
    with ExitStack() as stack:
        plain = [
            stack.enter_context(stage_thread(token, StageLoader([folder], store=TensorStore(tmp_path / "tensors"))))
            for _ in range(2)
        ]
        assert staged([str(address) for address in plain], (2, 4)) == wanted
        divided = [StageCommand(folder, tmp_path / "token") for _ in range(2)]
        for each in divided:
            stack.callback(each.end)
        assert staged([divided[0].address], (4,)) == wanted
        assert staged([each.address for each in divided], (2, 4)) == wanted
        # The death of one process ends its stage; the other stage lives.
        [child] = divided[0].children
        pidfd = os.pidfd_open(divided[1].children[0])
        os.kill(child, signal.SIGKILL)
        assert divided[0].process.wait(10) == 1
        assert divided[1].process.poll() is None
        divided[1].end()
        assert process.has_ended(pidfd, 10)


def run(executor: Executor) -> list[int]:
    """Return the greedy tokens of a sequence, and of a fork of it."""
    prompt, forked = [TokenId(token) for token in range(3, 20)], 17
    tables = {1: [PageId(4), PageId(2)]}
    tokens = {1: list(prompt)}
    done = {1: 0}
    for step in range(12):
        copies = []
        if step == 4:
            tables[2], tokens[2], done[2] = [PageId(4), PageId(7)], [*tokens[1][:-1], TokenId(forked)], done[1]
            copies = [PageCopy(PageId(2), PageId(7))]
        chunks = [Chunk(SeqId(i), tokens[i][done[i] :], done[i], tables[i], 1) for i in tokens]
        logits = executor.begin(StepInput(chunks, copies)).logits()
        for i, row in zip(tokens, logits, strict=True):
            done[i] = len(tokens[i])
            tokens[i].append(TokenId(int(row.argmax())))
    return [int(token) for i in tokens for token in tokens[i]]
