"""Every fuzzing target takes its valid inputs, some random ones, and the inputs that once were findings."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.driver import input_of, take
from tests.fuzz.targets import TARGETS, Finding, Target

_FEW = 6
_MANY = 60


@pytest.fixture(scope="module", params=TARGETS)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    target = TARGETS[request.param]()
    yield target
    target.close()


def test_valid_inputs(target: Target) -> None:
    for seed in target.seeds:
        target.take(seed)


def test_random_inputs(target: Target) -> None:
    """Time is not measured here: a busy machine would fail."""
    is_slow = target.most_s > 2 or len(target.seeds) > 10
    for number in range(_FEW if is_slow else _MANY):
        target.take(input_of(target, 1, number))


def test_an_input_has_a_number() -> None:
    target = TARGETS["lmtp"]()
    assert input_of(target, 1, 5) == input_of(target, 1, 5)
    assert len({input_of(target, 1, number) for number in range(20)}) > 10


def test_an_input_that_takes_long_is_a_finding() -> None:
    def slow(_: bytes) -> None:
        for _ in range(200_000):
            pass

    with pytest.raises(Finding, match="processor time"):
        take(Target([b""], slow, most_s=1e-6), b"")


def test_a_target_leaves_no_files() -> None:
    target = TARGETS["safetensors"]()
    assert target.folder is not None
    folder = Path(target.folder.name)
    target.take(target.seeds[0])
    assert any(folder.iterdir())
    target.close()
    assert not folder.exists()
