"""Expressions with intersections, complements, multiples and rules, against oracles that take no derivatives."""

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.automata import Automaton
from tests.support.guests import build_test_guest
from tests.support.scale import scaled
from tests.support.tool_guest import ToolGuest

_SYMBOLS = "abc"
_TEXTS = [text for n in range(5) for text in itertools.product(range(len(_SYMBOLS)), repeat=n)]


@pytest.fixture(scope="module")
def exprs_guest() -> ToolGuest:
    return ToolGuest(build_test_guest("exprs"))


@dataclass(frozen=True, slots=True)
class Drawn:
    """An expression for the guest, in postfix, and its meaning."""

    postfix: str
    meaning: Automaton


def _set(members: frozenset[int]) -> Drawn:
    ranges = ",".join(f"{ord(_SYMBOLS[m]):02x}-{ord(_SYMBOLS[m]):02x}" for m in sorted(members))
    return Drawn(f"B{ranges}", Automaton.symbols(len(_SYMBOLS), members))


def _repeated(body: Drawn, counts: tuple[int, int | None]) -> Drawn:
    least, most = counts
    return Drawn(f"{body.postfix} R{least} {-1 if most is None else most}", body.meaning.repeat(least, most))


def _folded(sign: str, parts: list[Drawn]) -> Drawn:
    meaning = parts[0].meaning
    for part in parts[1:]:
        meaning = (
            meaning + part.meaning if sign == "." else meaning | part.meaning if sign == "|" else meaning & part.meaning
        )
    return Drawn(" ".join([*(part.postfix for part in parts), f"{sign}{len(parts)}"]), meaning)


# Complement over the symbols only: the oracle knows no other symbols.
_TEXT = _repeated(_set(frozenset(range(len(_SYMBOLS)))), (0, None))


def _complement(body: Drawn) -> Drawn:
    return Drawn(f"{body.postfix} ~ {_TEXT.postfix} &2", body.meaning.complement())


_COUNTS = st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (0, 3), (2, 4), (3, None)])
_PARTS = st.one_of(
    st.frozensets(st.integers(0, len(_SYMBOLS) - 1), min_size=1).map(_set),
    st.just(Drawn("E", Automaton.empty_text(len(_SYMBOLS)))),
)


def _grow(inner: st.SearchStrategy[Drawn]) -> st.SearchStrategy[Drawn]:
    return st.one_of(
        st.builds(_folded, st.sampled_from("...||&&"), st.lists(inner, min_size=2, max_size=3)),
        st.builds(_repeated, inner, _COUNTS),
        inner.map(_complement),
    )


@settings(max_examples=scaled(300), deadline=None)
@given(drawn=st.recursive(_PARTS, _grow, max_leaves=8))
def test_boolean_expressions(exprs_guest: ToolGuest, drawn: Drawn) -> None:
    texts = ",".join("".join(_SYMBOLS[c].encode().hex() for c in text) for text in _TEXTS)
    answer = exprs_guest.ask({"expr": drawn.postfix, "texts": texts})
    assert answer["error"] == ""
    assert answer["nothing"] is not bool(drawn.meaning.living() & {0})
    expected = "".join(drawn.meaning.verdict(text) for text in _TEXTS)
    assert answer["texts"] == expected


@dataclass(frozen=True, slots=True)
class Grammar:
    """Bodies of rules; each alternative begins with a letter and continues with letters and rules (numbers)."""

    rules: tuple[tuple[tuple[str | int, ...], ...], ...]
    start: tuple[tuple[str | int, ...], ...]

    def postfix(self) -> str:
        defined = [f"{_postfix(body)} ={number}" for number, body in enumerate(self.rules)]
        return " ".join([*defined, _postfix(self.start)])

    def languages(self, longest: int) -> tuple[set[str], set[str]]:
        """Return all texts, and all beginnings of texts, cut off above `longest`: a fixed point, no parser."""
        texts: list[set[str]] = [set() for _ in self.rules]
        prefixes: list[set[str]] = [set() for _ in self.rules]
        lives = [False] * len(self.rules)
        while True:
            before = ([set(t) for t in texts], [set(p) for p in prefixes], list(lives))
            for number, body in enumerate(self.rules):
                whole, begun, live = self._of(body, texts, prefixes, lives, longest)
                texts[number], prefixes[number], lives[number] = whole, begun, live
            if (texts, prefixes, lives) == before:
                whole, begun, _ = self._of(self.start, texts, prefixes, lives, longest)
                return whole, begun

    def _of(
        self,
        body: tuple[tuple[str | int, ...], ...],
        texts: list[set[str]],
        prefixes: list[set[str]],
        lives: list[bool],
        longest: int,
    ) -> tuple[set[str], set[str], bool]:
        whole: set[str] = set()
        begun: set[str] = set()
        live = False
        for way in body:
            if not all(isinstance(part, str) or lives[part] for part in way):
                continue
            live = True
            so_far = {""}
            for part in way:
                begins = {"", part} if isinstance(part, str) else {"", *prefixes[part]}
                begun |= {a + b for a in so_far for b in begins if len(a + b) <= longest}
                ends = {part} if isinstance(part, str) else texts[part]
                so_far = {a + b for a in so_far for b in ends if len(a + b) <= longest}
            begun |= so_far
            whole |= so_far
        return whole, begun, live


def _postfix(body: tuple[tuple[str | int, ...], ...]) -> str:
    ways = [
        " ".join([*(f"B{ord(p):02x}-{ord(p):02x}" if isinstance(p, str) else f"r{p}" for p in way), f".{len(way)}"])
        for way in body
    ]
    return " ".join([*ways, f"|{len(ways)}"])


_LETTERS = st.sampled_from(_SYMBOLS)
_ANY = st.one_of(_LETTERS, st.integers(0, 3))
_WAYS = st.builds(lambda first, rest: (first, *rest), _LETTERS, st.lists(_ANY, max_size=3))
_START = st.lists(st.lists(_ANY, max_size=3).map(tuple), min_size=1, max_size=2).map(tuple)
_BODIES = st.lists(_WAYS, min_size=1, max_size=3).map(tuple)
_GRAMMARS = st.builds(Grammar, st.tuples(_BODIES, _BODIES, _BODIES, _BODIES), _START)


@settings(max_examples=scaled(200), deadline=None)
@given(grammar=_GRAMMARS)
def test_rules(exprs_guest: ToolGuest, grammar: Grammar) -> None:
    whole, begun = grammar.languages(5)
    texts = ["".join(text) for n in range(6) for text in itertools.product(_SYMBOLS, repeat=n)]
    answer = exprs_guest.ask({"expr": grammar.postfix(), "texts": ",".join(text.encode().hex() for text in texts)})
    assert answer["error"] == ""
    expected = "".join("2" if text in whole else "1" if text in begun else "0" for text in texts)
    assert answer["texts"] == expected


@settings(max_examples=scaled(100), deadline=None)
@given(
    n=st.one_of(st.integers(1, 40), st.integers(1, 10**18)),
    numbers=st.lists(st.integers(0, 10**21), max_size=20),
    zeros=st.integers(0, 3),
)
def test_multiples(exprs_guest: ToolGuest, n: int, numbers: list[int], zeros: int) -> None:
    tried = [*numbers, *(number // n * n for number in numbers)]
    texts = ",".join([*(("0" * zeros + str(number)).encode().hex() for number in tried), "2d", "3039ff"])
    answer = exprs_guest.ask({"expr": f"D{n}", "texts": texts})
    assert answer["texts"] == "".join("1" if number % n else "2" for number in tried) + "00"


@pytest.mark.parametrize(
    ("expr", "nothing"),
    [
        ("D15 B33-33 R5 5 &2", True),  # 33333 is a multiple of 3 only
        ("D3 B33-33 R5 5 &2", False),
        ("D7 B30-39 R1 3 &2 D1001 B31-39 B30-39 R0 -1 .2 &2 &2", True),  # the least is 1001
        ("B61-61 R500 1000 B62-62 R0 -1 ~ &2", False),
        ("B61-61 R0 500 B61-61 R501 -1 &2", True),
        ("B61-62 R0 -1 B61-61 B62-62 |2 R0 -1 ~ &2", True),
        ("B00-ff R0 -1 ~", True),
        ("r0 =0 r0", True),  # begins with itself and never ends
        ("B61-61 r0 .2 =0 r0", True),
        ("B61-61 r1 .2 =0 B62-62 r0 .2 =1 r0 B63-63 |2", False),
    ],
)
def test_emptiness_is_decided(exprs_guest: ToolGuest, expr: str, nothing: bool) -> None:
    answer = exprs_guest.ask({"expr": expr, "texts": ""})
    assert answer["error"] == ""
    assert answer["nothing"] is nothing


@pytest.mark.parametrize(
    ("expr", "error"),
    [
        ("r0 B61-61 .2 B62-62 |2 =0 r0", "begins with itself"),
        ("B61-61 R0 1 =0 r0", "matches the empty string"),
        ("B61-61 r0 B62-62 .3 B63-63 |2 =0 r0 B61-61 R0 -1 &2", "an intersection holds a recursive rule"),
        ("B61-61 =0 r0 ~", "a complement holds a recursive rule"),
        ("D0", "a divisor"),
    ],
)
def test_what_is_refused(exprs_guest: ToolGuest, expr: str, error: str) -> None:
    assert error in exprs_guest.ask({"expr": expr, "texts": "61"})["error"]


def test_a_deep_nest_costs_no_stack(exprs_guest: ToolGuest) -> None:
    """The derivative of a rule is a list as long as the nest is deep."""
    nest = "5b" * 3000
    answer = exprs_guest.ask({"expr": "B5b-5b r0 R0 1 B5d-5d .3 =0 r0", "texts": f"{nest},{nest}5d5d,5d"})
    assert answer == {"error": "", "nothing": False, "states": answer["states"], "texts": "110"}
