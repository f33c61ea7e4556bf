"""A guest from a snapshot gives the masks of a guest that read the vocabulary itself."""

import json
import random
from collections.abc import Iterator

import pytest

from aici_base.cache_files import default_cache_dir
from aici_controllers.in_process_guest import InProcessGuest, InProcessRuntime
from aici_runtime.tokenizer import vocabulary
from tests.support.guests import shipped_guest
from tests.support.vocabulary import write_tokenizer

TOKENS = [b"ab", b"abc", b"{", b'{"', b'"a"', b'": ', b"12", "ü".encode(), b"the ", b" cat", b"\n", b"true", b"[1"]

EOS = 0

PROGRAMS = {
    "choices": '["abc", "abd 12", "the cat"]',
    "substring": json.dumps({"text": "the cat and the hat", "end": ""}),
    "regex": r"([a-z]+ ?[0-9]*\n?|ü)+",
    "json_schema": '{"schema": {"properties": {"a": {"type": "integer"}, "b": {}}}, "objects": "open"}',
    "grammar": '%start s\n%%\ns: "ab" s "12" | "/[a-c]+/" ;\n',
}
"""Guests that compile fast; the others run their cases in the runtime, from snapshots too."""


@pytest.fixture(scope="module")
def guests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessRuntime]:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder, TOKENS)
    runtime = InProcessRuntime(vocabulary.load(str(folder), default_cache_dir()))
    yield runtime
    runtime.close()


@pytest.mark.parametrize("name", PROGRAMS)
def test_masks_are_the_same(guests: InProcessRuntime, name: str) -> None:
    shipped_guest(name)
    guests.compile(name)
    assert guests.keep_snapshot(name)
    for seed in range(3):
        assert walk(guests.start(name, PROGRAMS[name]), seed) == walk(
            guests.start(name, PROGRAMS[name], is_first=True), seed
        )


def walk(guest: InProcessGuest, seed: int) -> list[bytes]:
    """Return the masks of a random text of at most 12 pieces."""
    choose, masks = random.Random(seed), []
    for _ in range(12):
        tokens = guest.forced()
        if not tokens:
            guest.mask()
            masks.append(guest.bits())
            tokens = [token for token in range(8 * len(masks[-1])) if masks[-1][token >> 3] >> (token & 7) & 1]
            if tokens == [EOS]:
                break
            tokens = [choose.choice([token for token in tokens if token != EOS])]
        guest.consume(*tokens)
    return masks
