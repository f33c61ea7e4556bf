"""Faults inside of an engine process: a folder for PYTHONPATH that changes the forward passes of every engine."""

from pathlib import Path

_CUSTOM = """
import importlib.abc, importlib.util, os, sys, time

HANGS, LATER, BURNS, SLOW, DEADLY = (
    {folder!r} + "/" + name for name in ("hangs", "hangs_later", "burns", "slow", "deadly")
)
NAME = "aici_engine.local_executor"


def change(module):
    begin = module.LocalExecutor.begin

    def begin_with_faults(self, step):
        if any(list(chunk.tokens[:3]) == [100, 105, 101] for chunk in step.chunks) and os.path.exists(DEADLY):
            os._exit(9)
        if os.path.exists(HANGS):
            os.remove(HANGS)
            time.sleep(3600)
        if os.path.exists(LATER) and any(chunk.start >= 100 for chunk in step.chunks):
            os.remove(LATER)
            time.sleep(3600)
        if os.path.exists(BURNS):
            os.remove(BURNS)
            while True:
                pass
        if os.path.exists(SLOW):
            os.remove(SLOW)
            until = time.process_time() + 6
            while time.process_time() < until:
                pass
        return begin(self, step)

    module.LocalExecutor.begin = begin_with_faults
    if os.path.exists(SLOW):
        # A slow machine is slow for a large model.
        module.LocalExecutor.memory_bytes = property(lambda self: 1 << 40, lambda self, value: None)


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != NAME:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (execute(module), change(module))
        return spec


sys.meta_path.insert(0, Finder())
"""


class Faults:
    """A file in `folder` is a fault, for one forward pass: `hangs` sleeps for ever, `hangs_later` too,
    when a sequence has a hundred tokens, `burns` computes for ever, `slow`
    computes for six seconds. With `deadly`, every pass that begins with "die" ends the engine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "sitecustomize.py").write_text(_CUSTOM.format(folder=str(folder)))

    def cause(self, name: str) -> None:
        (self.folder / name).touch()

    def end(self, name: str) -> None:
        (self.folder / name).unlink()

    def has_happened(self, name: str) -> bool:
        return not (self.folder / name).exists()
