"""The engine's end of the runtime: starts `aicirt`, owns the shared objects, speaks the wire."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from aici_runtime.ids import SeqId, TokenId
from aici_runtime.wire import Mid, MidOp, ModuleInfo, PostOp, PostPre, PreOp, TagInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """`tokenizer`: a folder with a `tokenizer.json`, or that file. `extra_args`: further flags of `aicirt`, last wins."""

    tokenizer: Path
    json_size_mib: int = 8
    bin_size_mib: int = 16
    cache_dir: Path | None = None
    max_pre_step_time_ms: int = 250
    max_step_time_ms: int = 1000
    extra_args: tuple[str, ...] = ()


class Runtime:
    """One controller runtime. Main-channel methods belong to one thread; side-channel methods to any."""

    vocab_size: int
    eos_token: TokenId
    pid: int

    def __init__(self, config: RuntimeConfig) -> None:
        """Start the process and return before it is ready."""
        raise NotImplementedError

    def wait_ready(self) -> None: ...

    def mk_module(self, wasm: bytes) -> ModuleInfo: ...

    def set_tags(self, module_id: str, tags: Sequence[str]) -> list[TagInfo]: ...

    def get_tags(self) -> list[TagInfo]: ...

    def instantiate(
        self, *, req_id: str, prompt: Sequence[TokenId], module_id: str, module_arg: object
    ) -> "Future[None]": ...

    def discard(self, req_id: str) -> None:
        """End a guest that was instantiated and will never be bound. No answer, idempotent."""

    def post_pre_process(
        self, *, post_ops: Sequence[PostOp], pre_ops: Sequence[PreOp], freed: Sequence[SeqId]
    ) -> PostPre: ...

    def send_mid(self, ops: Sequence[MidOp]) -> None: ...

    def recv_mid(self) -> Mid: ...

    def mask_rows(self, n: int) -> memoryview: ...

    def close(self) -> None: ...

    def __enter__(self) -> "Runtime": ...

    def __exit__(self, *exc: object) -> None: ...
