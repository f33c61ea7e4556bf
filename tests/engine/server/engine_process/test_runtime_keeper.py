"""RuntimeKeeper starts new controller runtimes until a runtime works."""

import os
import queue
import signal
import threading
from pathlib import Path

import pytest

from aici_engine.server.engine_process.runtime_keeper import RuntimeKeeper
from aici_runtime.client import Runtime, RuntimeConfig
from tests.runtime.support import wat
from tests.support.processes import wait_until


def test_a_runtime_that_does_not_start_is_tried_again(
    tiny_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module, aside = tmp_path / "guest.wasm", tmp_path / "aside.wasm"
    module.write_bytes(wat.plain())
    keeper = RuntimeKeeper(RuntimeConfig(tokenizer=tiny_model, cache_dir=tmp_path), [str(module)])
    used: queue.SimpleQueue[Runtime] = queue.SimpleQueue()
    thread = threading.Thread(target=keeper.keep, args=(used.put,))
    try:
        first = keeper.wait_ready()
        thread.start()
        module.rename(aside)
        os.kill(first.pid, signal.SIGKILL)
        assert wait_until(lambda: "did not come up" in caplog.text, 20)
        aside.rename(module)
        used.get(timeout=30).ping()
    finally:
        keeper.close()
        thread.join()
