"""Our masks beside llguidance's, bit for bit, along the texts of the benchmark's cases. Both are told nothing of the
other: where they differ, one of them is wrong or the difference stands in EXPLAINED.
"""

import pytest

from aici_controllers.build import sdk_dir
from aici_controllers.mask_bench.cases import Case, all_cases
from aici_controllers.mask_bench.engine import allows
from aici_controllers.mask_bench.llguidance import LLGuidance
from aici_controllers.mask_bench.ours import Ours, guest_of
from aici_controllers.mask_bench.vocabulary import BenchVocabulary, open_vocabulary
from tests.support.vocabulary import write_tokenizer

_GUESTS = {path.name for path in (sdk_dir().parent / "guests").iterdir()}
_CASES = [
    case
    for case in all_cases()
    if case.notations.keys() & {"regex", "lark"} and guest_of(case)[0] in _GUESTS and "substring" not in case.notations
]

EXPLAINED: dict[str, str] = {}
"""Case: why its masks differ, and who is right."""


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> BenchVocabulary:
    """All runs of two and three characters, and some longer ones, of the cases' texts; and pieces of characters."""
    texts = [text for case in all_cases() for text in (case.text, *case.bad)]
    words = {text[at : at + size] for text in texts for size in (2, 3, 5, 9) for at in range(len(text) - size + 1)}
    tokens = sorted(word.encode() for word in words)[::3]
    tokens += [b"\xc3\xa9", b"\xa9x", b"\xe2\x80", b"\xe2\x80\x9c", b"\xf0\x9f\x98", b" \n", b"\r\n", b"\t\t"]
    folder = write_tokenizer(tmp_path_factory.mktemp("vocabulary"), sorted(set(tokens)))
    return open_vocabulary("parity", folder)


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
def test_masks_are_those_of_llguidance(case: Case, vocabulary: BenchVocabulary, regex_module: object) -> None:
    ours, theirs = Ours(vocabulary), LLGuidance(vocabulary)
    ours.prepare(case)
    mine, other = ours.start(case), theirs.start(_without_forcing(case))
    for position, token in enumerate(_greedy(case.text.encode(), vocabulary)):
        mine.mask()
        other.mask()
        different = _tokens(mine.bits()) ^ _tokens(other.bits())
        if case.name not in EXPLAINED:
            assert {vocabulary.token_bytes[t] for t in different} == set(), position
        assert allows(mine, token), position
        mine.consume(token)
        other.consume(token)
    mine.mask()
    assert allows(mine, vocabulary.eos_token)
    ours.close()


def _without_forcing(case: Case) -> Case:
    """llguidance narrows a mask to one token where only one text can follow; unless told not to."""
    lark = case.notations.get("lark") or f"start: /{case.notations['regex'].replace('/', chr(92) + '/')}/"
    notations = {"lark": '%llguidance {"no_forcing": true}\n' + lark}
    return Case(name=case.name, text=case.text, bad=case.bad, notations=notations)


def _greedy(text: bytes, vocabulary: BenchVocabulary) -> list[int]:
    ids = {raw: token for token, raw in enumerate(vocabulary.token_bytes) if raw}
    longest, tokens = max(map(len, ids)), []
    while text:
        piece = next(text[:size] for size in range(longest, 0, -1) if text[:size] in ids)
        tokens.append(ids[piece])
        text = text[len(piece) :]
    return tokens


def _tokens(bits: bytes) -> set[int]:
    number = int.from_bytes(bits, "little")
    return {token for token in range(8 * len(bits)) if number >> token & 1}
