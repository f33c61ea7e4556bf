"""Masks of heads shared by many states (white space, digits), against a plain walk of the tree byte by byte."""

import json
import random
import re
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from aici_controllers.mask_bench.vocabulary import BenchVocabulary, open_vocabulary
from aici_controllers.schema_check import SchemaOptions, schema_argument
from tests.support.fake_host import FakeHost, GuestModule, GuestStoppedError
from tests.support.guests import build_test_guest, shipped_guest
from tests.support.model import default_model_dir
from tests.support.random_schemas import SCHEMAS
from tests.support.realistic_schemas import SCHEMAS as SCHEMAS_OF_PEOPLE
from tests.support.scale import scaled


@pytest.fixture(scope="module")
def plain() -> GuestModule:
    return GuestModule(build_test_guest("exprs_walk"))


@pytest.fixture(scope="module")
def schema_guest() -> GuestModule:
    return shipped_guest("json_schema")


@pytest.fixture(scope="module")
def real_vocabulary() -> BenchVocabulary:
    return open_vocabulary("default", default_model_dir())


def _tokens(mask: bytes) -> set[int]:
    bits = f"{int.from_bytes(mask, 'little'):b}"[::-1]
    return {match.start() for match in re.finditer("1", bits)}


def _compare(hosts: Sequence[FakeHost], chance: random.Random, steps: int) -> int:
    """Compare masks and return how many were compared; all guests get the same tokens."""
    for step in range(steps):
        results = [host.mid_process() for host in hosts]
        assert all(result == results[0] for result in results)
        if results[0] != {"SampleWithBias": {}}:
            return step
        assert hosts[0].mask == hosts[1].mask
        assert hosts[0].mask is not None
        allowed = _tokens(hosts[0].mask) - {hosts[0].eos}
        if not allowed:
            return step + 1
        # Short tokens are chosen more often than the many long tokens, else strings never end; closing tokens less
        # often.
        short = {
            token for token in allowed if len(raw := hosts[0].vocabulary[token]) < 3 and not raw.endswith((b"}", b"]"))
        }
        token = chance.choice(sorted(short if short and chance.random() < 0.7 else allowed))
        for host in hosts:
            host.post_process([token])
    return steps


def _hosts(modules: Sequence[GuestModule], argument: bytes, vocabulary: Sequence[bytes]) -> list[FakeHost]:
    return [FakeHost(module, vocabulary, eos=len(vocabulary) - 1, arg=argument) for module in modules]


@pytest.mark.parametrize("name", SCHEMAS_OF_PEOPLE)
def test_schemas_of_people(
    name: str, schema_guest: GuestModule, plain: GuestModule, real_vocabulary: BenchVocabulary
) -> None:
    chance = random.Random(name)
    argument = schema_argument(SCHEMAS_OF_PEOPLE[name], SchemaOptions(whitespace="flexible"))
    trie = real_vocabulary.loaded.tries["v1"]
    num_masks = 0
    for _ in range(scaled(3)):
        hosts = [
            FakeHost(module, real_vocabulary.token_bytes, eos=real_vocabulary.eos_token, arg=argument, trie=trie)
            for module in (schema_guest, plain)
        ]
        num_masks += _compare(hosts, chance, 30)
    assert num_masks > 10


_PIECES = ["", " ", "  ", "    ", "\n", "\n  ", "\t", "\t\t", '"', ":", ",", "{", "}", "[", "]", "0", "12", ".5", "e9"]
_PIECES += ["-", "a", "b", "key", "true", "null", "\\n", "é", "\r"]
_TOKENS = st.lists(st.sampled_from(_PIECES), min_size=1, max_size=6).map(lambda pieces: "".join(pieces).encode())
_VOCABULARIES = st.lists(_TOKENS, min_size=10, max_size=150).map(
    lambda tokens: [*tokens, *(bytes([byte]) for byte in range(256)), b""]
)
_OPTIONS = st.builds(
    SchemaOptions,
    whitespace=st.sampled_from(["flexible", "compact"]),
    objects=st.sampled_from(["closed", "open"]),
    property_order=st.sampled_from(["declared", "any"]),
)


@settings(max_examples=scaled(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(schema=SCHEMAS, vocabulary=_VOCABULARIES, options=_OPTIONS, seed=st.integers())
def test_random_schemas(
    schema_guest: GuestModule,
    plain: GuestModule,
    schema: object,
    vocabulary: list[bytes],
    options: SchemaOptions,
    seed: int,
) -> None:
    argument = schema_argument(json.dumps(schema), options)
    try:
        hosts = _hosts((schema_guest, plain), argument, vocabulary)
    except GuestStoppedError:
        event("refused")
        return
    event("walked" if _compare(hosts, random.Random(seed), 20) > 5 else "short")


_ATOMS = ["a", "b", "é", "[ab]", "[0-9]", " ", "\\n", "(?: |\\n)", "(?:x{2,5})", "[^a]"]
_COUNTS = ["*", "?", "{0,3}", "{0,40}", "{1,4}", "+"]
_HEADS = st.builds(str.__add__, st.sampled_from(_ATOMS), st.sampled_from([*_COUNTS, "*", "?"]))
_PARTS = st.recursive(
    st.one_of(_HEADS, _HEADS, st.sampled_from([*_ATOMS, ",", '"k"'])),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda ways: f"(?:{'|'.join(ways)})"),
        st.builds(lambda body, count: f"(?:{body}){count}", inner, st.sampled_from(_COUNTS)),
    ),
    max_leaves=10,
)
_TEXTS = st.text(st.sampled_from('aabbx  \n019é,"k'), min_size=1, max_size=8).map(str.encode)
_PATTERN_VOCABULARIES = st.lists(_TEXTS, min_size=10, max_size=150).map(
    lambda tokens: [*tokens, *(bytes([byte]) for byte in range(256)), b""]
)
_OPTIONS = st.builds(
    SchemaOptions,
    whitespace=st.sampled_from(["flexible", "compact"]),
    objects=st.sampled_from(["closed", "open"]),
    property_order=st.sampled_from(["declared", "any"]),
)


@settings(max_examples=scaled(250), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(_PARTS, min_size=2, max_size=5), vocabulary=_PATTERN_VOCABULARIES, seed=st.integers())
def test_random_patterns(
    regex_module: GuestModule, plain: GuestModule, parts: list[str], vocabulary: list[bytes], seed: int
) -> None:
    hosts = _hosts((regex_module, plain), "".join(parts).encode(), vocabulary)
    event("walked" if _compare(hosts, random.Random(seed), 12) > 3 else "short")
