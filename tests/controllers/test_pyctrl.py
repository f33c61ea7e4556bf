"""Scripts in Python, in the runtime alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from aici_controllers import catalog
from aici_controllers.byte_tokenizer import write_byte_tokenizer
from aici_controllers.case_file import Case, read_cases
from aici_controllers.case_runner import CaseRunner, Tokens
from aici_runtime.client import Runtime, RuntimeConfig
from tests.support.guests import shipped_guest

_GUEST = Path(__file__).resolve().parents[2] / "controllers" / "guests" / "pyctrl"
_FILE = read_cases(_GUEST / "cases.toml")


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CaseRunner]:
    shipped_guest("pyctrl")
    tokenizer = write_byte_tokenizer(tmp_path_factory.mktemp("bytes"), _FILE.tokens)
    with Runtime(RuntimeConfig(tokenizer=tokenizer, json_size_mib=16, max_init_time_ms=5000)) as runtime:
        tokens = Tokens(tokenizer)
        runtime.wait_ready()
        module = runtime.mk_module(catalog.guest_path("pyctrl").read_bytes())
        yield CaseRunner(runtime, tokens, module.module_id)


@pytest.mark.parametrize("case", _FILE.cases, ids=lambda case: case.name)
def test_cases(runner: CaseRunner, case: Case) -> None:
    outcome = runner.run(case)
    assert outcome.ok, f"step {outcome.step}: {outcome.message}\n{outcome.log}"
