"""The process of one rank of a tensor parallel stage: `python -m aici_engine.cluster.tensor_rank SOCKET RANK`."""

import os
import socket
import sys
import threading
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.distributed import FileStore  # type: ignore[attr-defined]

from aici_base.errors import UnavailableError
from aici_engine.cluster.rank_messages import (
    MakeStorage,
    RankReady,
    RankSettings,
    ReadTensor,
    receive_bytes,
    receive_order,
    receive_settings,
    send,
)
from aici_engine.model.huggingface_stage import HuggingFaceStage
from aici_engine.model.stage_range import LayerRange
from aici_engine.model.tensor_source import DTYPES, TensorInfo, TensorSource
from aici_engine.native.library import load
from aici_engine.native.paged_attention import PagedKernel
from aici_engine.native.thread_pool import ThreadPool
from aici_runtime import process

_PEER_TIMEOUT = timedelta(minutes=2)
"""A rank that waits longer for another one, while the group forms or in a step, fails. torch's default: 30 minutes."""


def main(fd: int, rank: int) -> None:
    """Load the share of a rank, and compute steps until rank 0 is gone."""
    process.set_name(f"aici-rank-{rank}")
    rank_0 = socket.socket(fileno=fd)
    settings = receive_settings(rank_0)
    if settings is None:
        return
    process.die_with(os.pidfd_open(settings.parent))
    send(rank_0, RankReady())
    join_group(settings, rank=rank)
    stage = load_share(SocketSource(rank_0, settings), settings, rank=rank)
    send(rank_0, RankReady())
    storage = stage.make_storage(num_pages=0, page_size=16)
    while (order := receive_order(rank_0)) is not None:
        if isinstance(order, MakeStorage):
            del storage  # two at a time may not fit
            storage = stage.make_storage(num_pages=order.num_pages, page_size=order.page_size)
            continue
        for copy in order.step.copies:
            storage.copy_page(*copy)
        states = None
        if order.num_states >= 0:
            states = torch.empty(order.num_states, stage.hidden_size, dtype=stage.states_dtype)
            torch.distributed.broadcast(states, src=0)
        stage.run(storage, order.step.chunks, states)


def join_group(settings: RankSettings, *, rank: int) -> None:
    """Make the torch.distributed group of this process. The ranks find each other by a file, on the loopback."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if settings.device == "cuda":
        torch.cuda.set_device(rank)
    torch.set_num_threads(settings.num_threads)
    torch.distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if settings.device == "cuda" else "gloo",
        store=FileStore(settings.store, settings.num_ranks),
        rank=rank,
        world_size=settings.num_ranks,
        timeout=_PEER_TIMEOUT,
    )


def leave_group() -> None:
    """Idempotent."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def load_share(source: TensorSource, settings: RankSettings, *, rank: int) -> HuggingFaceStage:
    from aici_engine.model.load_stage import load_stage

    on_cpu = settings.device == "cpu"
    library = load() if on_cpu else None
    return load_stage(
        source,
        LayerRange(settings.first, settings.last, embedding=settings.embedding, head=settings.head),
        dtype=settings.dtype,
        device=torch.device("cpu") if on_cpu else torch.device(settings.device, rank),
        kernel=None if library is None else PagedKernel(ThreadPool(library, settings.num_threads)),
        num_ranks=settings.num_ranks,
    )


class SocketSource(TensorSource):
    """The tensors of rank 0. Safe to read from several threads, as transformers does."""

    def __init__(self, rank_0: socket.socket, settings: RankSettings) -> None:
        self.config = settings.config
        self.generation_config = settings.generation_config
        self.tensors = {name: TensorInfo(*info) for name, info in settings.tensors.items()}
        self._rank_0 = rank_0
        self._lock = threading.Lock()

    def identity(self, section: LayerRange | None = None) -> str:
        raise NotImplementedError("shares are not cached")

    def read_bytes(self, name: str, start: int, count: int) -> bytes:
        raise NotImplementedError("shares are read as tensors")

    def read(self, name: str) -> npt.NDArray[Any]:
        with self._lock:
            send(self._rank_0, ReadTensor(name))
            content = receive_bytes(self._rank_0)
        if content is None:
            raise UnavailableError("rank 0 of the stage is gone")
        info = self.tensors[name]
        return np.frombuffer(content, DTYPES[info.dtype]).reshape(info.shape)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
