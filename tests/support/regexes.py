"""A grammar of regular expressions, for hypothesis: a drawn tree renders to a pattern."""

from hypothesis import strategies as st

from tests.support.regex_oracle import (
    DIGIT,
    SPACE,
    WORD,
    Chars,
    Choice,
    Node,
    Repeat,
    Sequence_,
    literal,
)

# Both sides of every border of UTF-8, and the borders of the character classes.
ALPHABET = 'abAB09_- .\t\n"[\\é\x7f\x80\u07ff\u0800€\ud7ff\ue000\uffff\U00010000😀\U0010ffff'
_NAMED = [
    Chars(r"\d", DIGIT),
    Chars(r"\w", WORD),
    Chars(r"\s", SPACE),
    Chars(r"\D", DIGIT, negated=True),
    Chars(r"\W", WORD, negated=True),
    Chars(r"\S", SPACE, negated=True),
    Chars(".", ((10, 10),), negated=True),
]


@st.composite
def _classes(draw: st.DrawFn) -> Chars:
    items, ranges = [], []
    for _ in range(draw(st.integers(1, 3))):
        first, last = sorted(draw(st.tuples(*[st.sampled_from(ALPHABET)] * 2)))
        if draw(st.booleans()):
            last = first
        items.append(literal(first).text if first == last else f"{literal(first).text}-{literal(last).text}")
        ranges.append((ord(first), ord(last)))
    if draw(st.booleans()):
        named = draw(st.sampled_from(_NAMED[:3]))
        items.append(named.text)
        ranges.extend(named.ranges)
    negated = draw(st.booleans())
    return Chars(f"[{'^' * negated}{''.join(items)}]", tuple(ranges), negated)


_QUANTIFIERS = [
    (0, None, "*"),
    (1, None, "+"),
    (0, 1, "?"),
    (2, 2, "{2}"),
    (1, None, "{1,}"),
    (0, 3, "{0,3}"),
    (2, 4, "{2,4}?"),
]
_LEAVES = st.one_of(st.sampled_from(ALPHABET).map(literal), st.sampled_from(_NAMED), _classes())


def _grow(nodes: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.one_of(
        st.lists(nodes, max_size=3).map(lambda parts: Sequence_(tuple(parts))),
        st.lists(nodes, min_size=1, max_size=3).map(lambda ways: Choice(tuple(ways))),
        st.builds(lambda body, q: Repeat(body, *q), nodes, st.sampled_from(_QUANTIFIERS)),
    )


REGEXES: st.SearchStrategy[Node] = st.recursive(_LEAVES, _grow, max_leaves=7)
