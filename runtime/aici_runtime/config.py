"""How an engine configures its runtime."""

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from aici_runtime.channels.mailbox import Sync

_WEEK_S = 7 * 24 * 60 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """The settings of a runtime, as flags of `aicirt`.

    `tokenizer`: a folder with a `tokenizer.json`, or the file. `max_forks`: guests of a request, the first included.
    `pooled`: the ids of modules whose guests share processes, those of each user apart.
    `extra_args`: more flags of `aicirt`; the last flag wins. With futexes, messages may use half of `json_size_mib`.

    The time limits are wider than in upstream AICI (4 and 150 ms), where every guest has a core: here a guest is
    stopped for running away, not for sharing two cores with a model. The runtime adds 200 ms of grace to every limit.
    With `late_steps`, the runtime instead waits for a late guest for the time of so many steps, and other guests go on.
    """

    tokenizer: Path
    json_size_mib: int = 8
    bin_size_mib: int = 16
    cache_dir: Path | None = None
    max_pre_step_time_ms: int = 250
    max_step_time_ms: int = 1000
    max_init_time_ms: int = 5000
    max_forks: int = 16
    late_steps: int = 0
    pooled: tuple[str, ...] = ()
    sync: Sync = "semaphore"
    verbose: bool = False
    extra_args: tuple[str, ...] = ()

    def command(self, prefix: str) -> list[str]:
        return [
            sys.executable,
            "-P",  # else a file `select.py` in the current folder would replace the standard library's
            "-m",
            "aici_runtime.main",
            "--server",
            f"--name={prefix}",
            f"--tokenizer={self.tokenizer}",
            f"--json-size={self.json_size_mib}",
            f"--bin-size={self.bin_size_mib}",
            "--proto=v1",
            "--bias-dtype=bool",
            "--cap-fork",
            "--cap-backtrack",
            "--cap-ff-tokens",
            f"--wasm-max-pre-step-time={self.max_pre_step_time_ms}",
            f"--wasm-max-step-time={self.max_step_time_ms}",
            f"--wasm-max-init-time={self.max_init_time_ms}",
            f"--wasm-max-forks={self.max_forks}",
            f"--wasm-max-timeout-steps={self.late_steps}",
            "--wasm-max-compile-time=60000",
            # A request may wait for hours before its guest is bound, and a bind after the time-out would fail with the
            # whole command. Our engine discards every guest without a bind, so the runtime need not.
            f"--unbound-timeout={_WEEK_S}",
            f"--engine-pid={os.getpid()}",
            *([f"--cache-dir={self.cache_dir}"] if self.cache_dir else []),
            *(f"--pooled={module_id}" for module_id in self.pooled),
            *(["--futex"] if self.sync == "futex" else []),
            *(["--verbose"] if self.verbose else []),
            *self.extra_args,
        ]


def patient(config: RuntimeConfig) -> RuntimeConfig:
    """Return settings for a server: a slow guest delays a step of other requests by 0.1 s at most, once."""
    return replace(config, max_pre_step_time_ms=50, max_step_time_ms=100, late_steps=20)
