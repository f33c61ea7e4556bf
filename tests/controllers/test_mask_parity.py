"""Our masks against llguidance's, bit for bit, along the texts of the benchmark's cases.

Neither engine knows of the other. A difference is an error of one engine, or explained in EXPLAINED.
"""

import re
from dataclasses import dataclass

import pytest

from aici_controllers.build import sdk_dir
from aici_controllers.mask_bench.cases import MaskCase, all_cases
from aici_controllers.mask_bench.engine import allows
from aici_controllers.mask_bench.ours import Ours, guest_of
from aici_controllers.mask_bench.vocabulary import BenchVocabulary, open_vocabulary
from tests.peers.masks import llguidance
from tests.support.vocabulary import write_tokenizer

_GUESTS = {path.name for path in (sdk_dir().parent / "guests").iterdir()}
_CASES = [
    case
    for case in all_cases()
    if case.notations.keys() & {"regex", "lark"} and guest_of(case)[0] in _GUESTS and "substring" not in case.notations
]


@dataclass(frozen=True, slots=True)
class Explained:
    """Return the possible text after a token that a single engine allows, with 40 bytes before the token."""

    ours: re.Pattern[bytes] = re.compile(rb"(?!)")
    theirs: re.Pattern[bytes] = re.compile(rb"(?!)")


_C_KEYWORDS = rb"int|char|float|double|void|const|if|else|while|for|return|break|continue"
EXPLAINED: dict[str, Explained] = {
    # llguidance accepts nothing after the last lexeme, not even text under %ignore. Here SKIP may follow, and JSON may
    # end in white space; the texts are complete in both cases.
    "json": Explained(ours=re.compile(rb".*[\]}0-9le\"]\s+", re.DOTALL)),
    # llguidance writes no DEL inside of a JSON string; RFC 8259 allows it.
    "json_in_grammar": Explained(ours=re.compile(rb".*\x7f.*", re.DOTALL)),
    # In llguidance a keyword is also a name if the parser accepts both; in C a keyword is never a name.
    "c_like": Explained(theirs=re.compile(rb".*\b(" + _C_KEYWORDS + rb")\b.*", re.DOTALL)),
}
"""By case: where the masks may differ; the reason, and which engine is right."""


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> BenchVocabulary:
    """All runs of two and three characters of the cases' texts, several longer runs, and parts of characters."""
    texts = [text for case in all_cases() for text in (case.text, *case.bad)]
    words = {text[at : at + size] for text in texts for size in (2, 3, 5, 9) for at in range(len(text) - size + 1)}
    tokens = sorted(word.encode() for word in words)[::3]
    tokens += [b"\xc3\xa9", b"\xa9x", b"\xe2\x80", b"\xe2\x80\x9c", b"\xf0\x9f\x98", b" \n", b"\r\n", b"\t\t"]
    folder = write_tokenizer(tmp_path_factory.mktemp("vocabulary"), sorted(set(tokens)))
    return open_vocabulary("parity", folder)


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
def test_masks_are_those_of_llguidance(case: MaskCase, vocabulary: BenchVocabulary, regex_module: object) -> None:
    ours, theirs = Ours(vocabulary), llguidance.Engine(vocabulary)
    ours.prepare(case)
    mine, other = ours.start(_contextual(case)), theirs.start(_without_forcing(case))
    explained, at = EXPLAINED.get(case.name, Explained()), 0
    for position, token in enumerate(_greedy(case.text.encode(), vocabulary)):
        mine.mask()
        other.mask()
        mine_now, theirs_now = _tokens(mine.bits()), _tokens(other.bits())
        ours_only, theirs_only = mine_now - theirs_now, theirs_now - mine_now
        near = case.text.encode()[max(0, at - 40) : at]
        at += len(vocabulary.token_bytes[token])
        behind = {t: near + vocabulary.token_bytes[t] for t in ours_only | theirs_only}
        assert [behind[t] for t in ours_only if not explained.ours.fullmatch(behind[t])] == [], position
        assert [behind[t] for t in theirs_only if not explained.theirs.fullmatch(behind[t])] == [], position
        assert allows(mine, token), position
        mine.consume(token)
        other.consume(token)
    mine.mask()
    assert allows(mine, vocabulary.eos_token)
    ours.close()


def _contextual(case: MaskCase) -> MaskCase:
    """llguidance's lexer knows the terminals accepted by the parser; ours does too, with an option."""
    notations = {name: "%option contextual\n" * (name == "yacc") + text for name, text in case.notations.items()}
    return MaskCase(name=case.name, text=case.text, bad=case.bad, notations=notations)


def _without_forcing(case: MaskCase) -> MaskCase:
    """By default llguidance narrows a mask to one token if only one text can follow, and accepts no ignored text
    before the first lexeme; options turn off both."""
    lark = case.notations.get("lark") or f"start: /{case.notations['regex'].replace('/', chr(92) + '/')}/"
    notations = {"lark": '%llguidance {"no_forcing": true, "allow_initial_skip": true}\n' + lark}
    return MaskCase(name=case.name, text=case.text, bad=case.bad, notations=notations)


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
