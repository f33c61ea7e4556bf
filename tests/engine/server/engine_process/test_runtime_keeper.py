"""RuntimeKeeper starts new controller runtimes until a runtime works."""

import hashlib
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


class Engine:
    """Records what the keeper says."""

    def __init__(self) -> None:
        self.used: queue.SimpleQueue[Runtime] = queue.SimpleQueue()
        self.expected: list[bool] = []

    def use_runtime(self, runtime: Runtime) -> None:
        self.used.put(runtime)

    def expect_runtime(self, is_expected: bool) -> None:
        self.expected.append(is_expected)


def test_after_many_deaths_there_is_a_pause_and_then_another_runtime(tiny_model: Path, tmp_path: Path) -> None:
    keeper, engine = RuntimeKeeper(RuntimeConfig(tokenizer=tiny_model, cache_dir=tmp_path), []), Engine()
    thread = threading.Thread(target=keeper.keep, args=(engine,))
    try:
        runtime = keeper.wait_ready()
        thread.start()
        for _ in range(4):
            os.kill(runtime.pid, signal.SIGKILL)
            runtime = engine.used.get(timeout=30)
        runtime.ping()
        assert engine.expected.count(False) == 1
        assert engine.expected[-1]
    finally:
        keeper.close()
        thread.join()


def test_a_runtime_that_does_not_start_is_tried_again(
    tiny_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module, aside = tmp_path / "guest.wasm", tmp_path / "aside.wasm"
    module.write_bytes(wat.plain())
    keeper = RuntimeKeeper(RuntimeConfig(tokenizer=tiny_model, cache_dir=tmp_path), [str(module)])
    engine = Engine()
    thread = threading.Thread(target=keeper.keep, args=(engine,))
    try:
        first = keeper.wait_ready()
        thread.start()
        module.rename(aside)
        os.kill(first.pid, signal.SIGKILL)
        assert wait_until(lambda: "did not come up" in caplog.text, 20)
        aside.rename(module)
        engine.used.get(timeout=30).ping()
    finally:
        keeper.close()
        thread.join()


def test_a_module_that_cannot_be_stored_is_lacking_and_the_runtime_runs(
    tiny_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module, no_folder = tmp_path / "guest.wasm", tmp_path / "file"
    module.write_bytes(wat.plain())
    no_folder.touch()
    keeper = RuntimeKeeper(RuntimeConfig(tokenizer=tiny_model, cache_dir=no_folder), [str(module)])
    try:
        keeper.wait_ready().ping()
        assert keeper.lacking == {hashlib.sha256(wat.plain()).hexdigest(): "guest"}
        assert "requests with these controllers fail: guest. cannot" in caplog.text
    finally:
        keeper.close()
