"""Forced tokens equal the tokenizer's tokens of the text, however the text continues."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from aici_controllers.in_process_guest import InProcessRuntime
from aici_controllers.mask_bench.engine import allows
from aici_controllers.schema_check import schema_argument
from aici_runtime.tokenizer import vocabulary
from tests.support.fake_host import FakeHost
from tests.support.guests import shipped_guest
from tests.support.realistic_schemas import SCHEMAS, key_order, spelled
from tests.support.scale import scaled
from tests.support.schema_documents import documents

_WORDS = ["the ", "colour", "colours", " green", "grün", " — ", "naïve", "  ", "\n", " \n", "12", "123", ": ", "'", "s"]


@dataclass(frozen=True)
class World:
    encode: Callable[[str], list[int]]
    eos: int
    guests: InProcessRuntime


@pytest.fixture(scope="module", params=["words", "across words"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Tokens within words and runs of punctuation, as in most models; or tokens across any boundary."""
    tokenizer = Tokenizer(models.BPE())
    within_words = request.param == "words"
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=within_words)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    texts = [
        json.dumps(schema, ensure_ascii=False, indent=indent) for schema in SCHEMAS.values() for indent in (None, 1)
    ]
    pairs = [first + second for first in _WORDS for second in _WORDS]
    tokenizer.train_from_iterator([*texts, *pairs], trainer)
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save(str(folder / "tokenizer.json"))
    loaded = vocabulary.load(str(folder), folder)
    guests = InProcessRuntime(loaded)
    try:
        for guest in ("choices", "json_schema"):
            shipped_guest(guest)
            guests.compile(guest)
        yield World(lambda text: list(tokenizer.encode(text).ids), loaded.eos_token, guests)
    finally:
        guests.close()


def _num_forced(world: World, guest: str, argument: str, text: str) -> int:
    """Follow the tokenizer's tokens of `text` and return how many were forced."""
    session = world.guests.start(guest, argument)
    rest, num_forced = world.encode(text), 0
    while rest:
        forced = session.forced()
        assert rest[: len(forced)] == forced, (text, len(rest))
        num_forced += len(forced)
        if not forced:
            session.mask()
            assert allows(session, rest[0])
        taken = forced or rest[:1]
        session.consume(*taken)
        assert not (forced and session.forced()), "the run goes on"
        rest = rest[len(taken) :]
    session.mask()
    assert allows(session, world.eos)
    return num_forced


_TEXTS = st.lists(st.sampled_from(_WORDS), min_size=1, max_size=5).map("".join)


@settings(max_examples=scaled(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(texts=st.lists(_TEXTS, min_size=1, max_size=5), begin=_TEXTS, data=st.data())
def test_choices(world: World, texts: list[str], begin: str, data: st.DataObject) -> None:
    choices = [begin + text for text in texts]
    chosen = data.draw(st.sampled_from(choices))
    num_forced = _num_forced(world, "choices", json.dumps(choices), chosen)
    if len(set(choices)) == 1 and not chosen[-1].isspace():
        assert num_forced == len(world.encode(chosen))


@pytest.mark.parametrize("name", [name for name in SCHEMAS if name != "any"])
@settings(max_examples=scaled(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_documents(world: World, name: str, data: st.DataObject) -> None:
    schema = SCHEMAS[name]
    document = data.draw(documents(schema, schema).filter(jsonschema.Draft202012Validator(schema).is_valid))
    text = spelled(document, key_order(schema), space=data.draw(st.sampled_from(["", " "])))
    _num_forced(world, "json_schema", schema_argument(schema).decode(), text)


def test_keys_and_constants_cost_no_step(world: World) -> None:
    schema: dict[str, Any] = {
        "properties": {
            "the_colour_of_it": {"enum": ["green", "naïve"]},
            "colours": {"const": "the green — the colour"},
        },
        "required": ["the_colour_of_it", "colours"],
        "type": "object",
        "additionalProperties": False,
    }
    text = '{"the_colour_of_it":"green","colours":"the green — the colour"}'
    assert _num_forced(world, "json_schema", schema_argument(schema).decode(), text) > len(world.encode(text)) / 2


@pytest.mark.parametrize(
    ("pattern", "more", "forced"),
    [
        ("abc", [], "abc"),
        ("abc", ["ab", "bc"], "abc"),
        ("ab(c|d)", [], "ab"),
        ("ab(c|d)", ["bc"], "a"),  # after this token, b alone cannot follow
        ("ab(c|d)", ["bx"], "ab"),
        ("ab(c|d)", ["abc"], ""),
        ("ab(c|d)e", ["bce"], "a"),
        ("ab?", [], "a"),
        ("ab?", ["ab"], ""),
        ("a*", [], ""),  # the text may end
        ("[ab]c", [], ""),
        ("aé", ["é"], "aé"),
        ("a(é|è)", [], "a"),  # half a character is not text
        ("é(a|b)", ["éa"], ""),
        ("x{300}", [], "x" * 256),
    ],
)
def test_what_may_merge_stays_open(pattern: str, more: list[str], forced: str) -> None:
    tokens = [*(bytes([byte]) for byte in range(256)), *(text.encode() for text in more), b""]
    host = FakeHost(shipped_guest("regex"), tokens, eos=len(tokens) - 1, arg=pattern.encode())
    host.init_prompt()
    told = host.pre_process()
    assert b"".join(tokens[token] for token in told["ff_tokens"]) == forced.encode()
    if forced:
        assert host.post_process(told["ff_tokens"])["stop"] is (len(forced) == len(pattern))
        # Forced once until another token comes: the runtime asks again in each step of a long prompt.
        assert [host.pre_process()["ff_tokens"] for _ in range(3)] == [[], [], []]


def test_bytes_that_are_no_text_are_not_forced() -> None:
    tokens = [bytes([byte]) for byte in range(256)]
    host = FakeHost(shipped_guest("choices"), [*tokens, b""], eos=256, arg='["aé", "bé"]'.encode())
    host.post_process([0x61, 0xC3])
    assert host.pre_process()["ff_tokens"] == []


def test_what_is_taken_back_is_forced_again() -> None:
    tokens = [bytes([byte]) for byte in range(256)]
    host = FakeHost(shipped_guest("regex"), [*tokens, b""], eos=256, arg=b"ab[cd]ef")
    assert host.pre_process()["ff_tokens"] == [*b"ab"]
    host.post_process([*b"ab"])
    assert host.pre_process()["ff_tokens"] == []
    host.post_process([*b"c"])
    assert host.pre_process()["ff_tokens"] == [*b"ef"]
    assert host.post_process([*b"e"])["stop"] is False
    host.post_process([], backtrack=3)
    assert host.pre_process()["ff_tokens"] == [*b"b"]
