"""A stage in several processes of one machine, each with a share of the heads: tensor parallelism.

This process has rank 0 and speaks to the pipeline. Its children have the other ranks (`tensor_rank.py`). Every child
has a socket to rank 0, over which come its settings, its tensors and the header of every step; states and partial sums
go over torch.distributed, by gloo on the CPU and by NCCL on GPUs. The group lives and dies together.
"""

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final

import torch

from aici_base.errors import AiciError, UnavailableError, UsageError
from aici_base.ids import TokenId
from aici_engine.arrays import bytes_of
from aici_engine.cache.ids import PageId
from aici_engine.cache.storage import KVStorage
from aici_engine.cluster.rank_messages import (
    MakeStorage,
    RankReady,
    RankSettings,
    RunStep,
    receive_from_rank,
    send,
    send_bytes,
)
from aici_engine.cluster.tensor_rank import join_group, leave_group, load_share
from aici_engine.model.stage_model import StageModel
from aici_engine.model.stage_range import LayerRange
from aici_engine.model.tensor_source import TensorSource
from aici_engine.native.stage_backend import StageSpec
from aici_engine.step_input import Chunk, PageCopy, StepInput

_END_S: Final = 5.0

_log = logging.getLogger(__name__)


def end_process() -> None:
    """End this process at once. Threads that wait for a dead rank cannot be ended in another way."""
    os._exit(1)


class TensorParallelStage(StageModel):
    """A range of layers, divided over this process and `num_ranks` - 1 children. One per process at a time.

    Bytes are of all processes together. `close` ends the children.
    """

    def __init__(
        self,
        source: TensorSource,
        part: LayerRange,
        spec: StageSpec,
        *,
        num_ranks: int,
        on_death: Callable[[], None] = end_process,
    ) -> None:
        """Start the children, and load every share. `on_death`: called on a thread if a child ends after that.

        Raises UsageError if the model cannot be divided or tensors are missing, UnavailableError if a child ends.
        """
        _check(source, spec, num_ranks)
        self._num_ranks = num_ranks
        self._on_death = on_death
        self._state = threading.Condition()
        self._num_ready = 0
        self._is_loading, self._is_closed = True, False
        self._ended: int | None = None
        self._storage: SharedStorage | None = None
        # A file in memory: nothing is left on disk, however the processes end. The number is never closed, since
        # torch's FileStore opens it once more when the garbage collection finds the store.
        meeting_fd = os.memfd_create("aici-ranks")
        self._children: list[_Child] = []
        settings = RankSettings(
            parent=os.getpid(),
            num_ranks=num_ranks,
            store=f"/proc/self/fd/{meeting_fd}",
            first=part.first,
            last=part.last,
            embedding=part.embedding,
            head=part.head,
            dtype=spec.dtype,
            device=spec.device,
            num_threads=spec.num_threads or max(1, torch.get_num_threads() // num_ranks),
            config=dict(source.config),
            generation_config=dict(source.generation_config),
            tensors={name: (info.dtype, info.shape) for name, info in source.tensors.items()},
        )
        try:
            for rank in range(1, num_ranks):
                self._children.append(_Child(rank, settings, source, self, meeting_fd))
            self._wait_for_children(1)
            join_group(settings, rank=0)
            self._stage = load_share(source, settings, rank=0)
            self._wait_for_children(2)
        except Exception as error:
            self.close()
            if isinstance(error, AiciError):
                raise
            raise UnavailableError(
                f"the stage's process of rank {self._ended} ended while it loaded: {error}",
                hint="its messages on standard error say why",
            ) from error
        self._is_loading = False
        self.part = part
        self.layers = self._stage.layers
        self.hidden_size = self._stage.hidden_size
        self.vocab_size = self._stage.vocab_size
        self.states_dtype = self._stage.states_dtype
        self.dtype = self._stage.dtype
        self.device = self._stage.device

    @property
    def pids(self) -> list[int]:
        """The processes of ranks 1, 2, ..."""
        return [child.process.pid for child in self._children]

    @property
    def token_bytes(self) -> int:
        return self._stage.token_bytes * self._num_ranks

    @property
    def weight_bytes(self) -> int:
        return self._stage.weight_bytes * self._num_ranks

    def make_storage(self, *, num_pages: int, page_size: int) -> "SharedStorage":
        """Allocate the share of every process. The storage that was made before is gone."""
        self._tell(MakeStorage(num_pages, page_size))
        self._storage = SharedStorage(self._stage.make_storage(num_pages=num_pages, page_size=page_size))
        return self._storage

    def run(self, storage: KVStorage, chunks: Sequence[Chunk], states: torch.Tensor | None) -> torch.Tensor:
        """See StageModel. A step that fails in one process leaves the other processes in the middle: the group ends."""
        assert storage is self._storage, "the storage of another time"
        plain = [
            chunk._replace(tokens=[*chunk.tokens] if self.part.embedding else [TokenId(0)] * len(chunk.tokens))
            for chunk in chunks
        ]
        step = StepInput(plain, self._storage.take_copies())
        header = RunStep(step, -1 if states is None else len(states))
        try:
            self._tell(header)
            if states is not None:
                states = states.cpu().contiguous()
                torch.distributed.broadcast(states, src=0)
            return self._stage.run(self._storage.own, chunks, states)
        except Exception:
            _log.exception("a step of the tensor parallel stage failed: the stage ends")
            self._on_death()
            raise

    def close(self) -> None:
        """End the children, and wait for them. Idempotent."""
        with self._state:
            self._is_closed = True
        for child in self._children:
            child.end()
        leave_group()

    def _wait_for_children(self, times_ready: int) -> None:
        count = times_ready * (self._num_ranks - 1)
        with self._state:
            self._state.wait_for(lambda: self._ended is not None or self._num_ready == count)
        if self._ended is not None:
            raise RuntimeError("the group is not complete")

    def _tell(self, message: MakeStorage | RunStep) -> None:
        for child in self._children:
            send(child.socket, message)

    # On the threads of the children.

    def _is_ready(self) -> None:
        with self._state:
            self._num_ready += 1
            self._state.notify()

    def _has_ended(self, rank: int) -> None:
        with self._state:
            if self._is_closed or self._ended is not None:
                return
            self._ended = rank
            self._state.notify()
            if self._is_loading:
                return
        _log.error("the process of rank %d has ended: the stage ends", rank)
        self._on_death()


class SharedStorage(KVStorage):
    """The share of rank 0. Copies of pages are noted, for the other ranks to make before their next step."""

    def __init__(self, own: KVStorage) -> None:
        self.own = own
        self.page_size = own.page_size
        self.keys, self.values = own.keys, own.values
        self._copies: list[PageCopy] = []

    def copy_page(self, source: PageId, target: PageId) -> None:
        self.own.copy_page(source, target)
        self._copies.append(PageCopy(source, target))

    def take_copies(self) -> list[PageCopy]:
        copies, self._copies = self._copies, []
        return copies


class _Child:
    """The process of one rank, and a thread that reads its messages."""

    def __init__(
        self, rank: int, settings: RankSettings, source: TensorSource, group: TensorParallelStage, meeting_fd: int
    ) -> None:
        """`meeting_fd`: the file of `RankSettings.store`; it has the same number in the child."""
        self._rank = rank
        self._source = source
        self._group = group
        self.socket, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "aici_engine.cluster.tensor_rank", str(theirs.fileno()), str(rank)]
            # Standard output of a stage is for its address.
            fds = [theirs.fileno(), meeting_fd]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, pass_fds=fds)
        threading.Thread(target=self._serve, args=(settings,), name=f"rank-{rank}", daemon=True).start()

    def _serve(self, settings: RankSettings) -> None:
        try:
            send(self.socket, settings)
            while (message := receive_from_rank(self.socket)) is not None:
                if isinstance(message, RankReady):
                    self._group._is_ready()
                    continue
                send_bytes(self.socket, bytes_of(self._source.read(message.name)))
        except (OSError, AiciError, KeyError) as error:
            _log.error("rank %d cannot be served: %s", self._rank, error)
        self._group._has_ended(self._rank)

    def end(self) -> None:
        with contextlib.suppress(OSError):  # the process has ended already
            self.socket.shutdown(socket.SHUT_RDWR)
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.socket.close()


def _check(source: TensorSource, spec: StageSpec, num_ranks: int) -> None:
    from aici_engine.model.load_stage import check_ranks  # imported here: transformers is slow to import

    if spec.backend == "native":
        raise UsageError(
            "the native kernels run in one process: on a CPU, more processes gain nothing",
            hint="leave out --tp, and give the stage more --threads",
        )
    if spec.dtype in ("int8", "int4"):
        raise UsageError(f"{spec.dtype} weights cannot be divided over processes", hint="use --dtype bfloat16")
    if spec.device == "cuda" and torch.cuda.device_count() < num_ranks:
        raise UnavailableError(
            f"{num_ranks} processes need a GPU each: torch sees {torch.cuda.device_count()}",
            hint="use fewer processes, or one stage per machine",
        )
    check_ranks(source, num_ranks)
