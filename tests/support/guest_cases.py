"""The cases of a shipped guest, in the real runtime with single bytes for tokens."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from aici_controllers import catalog
from aici_controllers.byte_tokenizer import write_byte_tokenizer
from aici_controllers.case_file import CaseFile
from aici_controllers.case_runner import CaseRunner, Tokens
from aici_runtime.client import Runtime, RuntimeConfig
from tests.support.guests import shipped_guest


@contextlib.contextmanager
def running_cases(guest: str, cases: CaseFile, folder: Path) -> Iterator[CaseRunner]:
    """Run the cases on a vocabulary of single bytes. `folder`: an empty folder for the tokenizer. Rebuild the guest
    if its sources changed."""
    shipped_guest(guest)
    tokenizer = write_byte_tokenizer(folder, cases.tokens)
    with Runtime(RuntimeConfig(tokenizer=tokenizer, json_size_mib=16, max_init_time_ms=5000)) as runtime:
        tokens = Tokens(tokenizer)
        runtime.wait_ready()
        module = runtime.mk_module(catalog.guest_path(guest).read_bytes())
        yield CaseRunner(runtime, tokens, module.module_id)
