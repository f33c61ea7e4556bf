"""What is prepared ahead of the first request, without the processes."""

from types import SimpleNamespace
from typing import Any

import pytest

from aici_base.errors import AiciError, NotFoundError, UnavailableError
from aici_runtime.supervision.instantiation import Instantiator


@pytest.mark.parametrize(
    ("error", "level"),
    [(UnavailableError("the disk is full"), "WARNING"), (NotFoundError("the module was removed"), "INFO")],
)
def test_only_a_trouble_of_the_machine_is_a_warning(
    error: AiciError, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    def compiled(module_id: str) -> None:
        raise error

    unused: dict[str, Any] = dict.fromkeys(("table", "spawner", "reports", "templates", "pools", "images", "snapshots"))
    registry: Any = SimpleNamespace(compiled=compiled)
    instantiator = Instantiator(**unused, registry=registry, generation=0, vocab_size=1, max_init_s=1)
    caplog.set_level("INFO", logger="aici_runtime")
    instantiator.prepare("ab" * 32)
    [record] = caplog.records
    assert record.levelname == level
    assert error.message in record.getMessage()
