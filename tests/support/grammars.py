"""Small grammars for hypothesis; many are wrong. With a contextual lexer, a blank may stand between any two lexemes:
the check of grammars does not find every pair of lexemes that would run together without blanks."""

from hypothesis import strategies as st

from tests.support.grammar_oracle import OracleGrammar, Symbol, Terminal

_KEYWORDS = [Terminal(text) for text in ("a", "b", "ab", "aa", "abc", "(", ")", ",", "((")]
_REGEXES = [
    Terminal(text, is_regex=True) for text in ("a+", "[ab]+", "b", "a*b", "(ab)+", "c[ab]?", "[bc]", "a|bb?", ",+")
]
_BLANKS = [Terminal(text, is_regex=True) for text in (" +", " *", "\\n?[ ]*")]
_SKIPS = [Terminal(text, is_regex=True) for text in ("\\n[ ]*#a*", "#a*\\n", "c +")]
_RULES = ("s", "t", "u")


@st.composite
def small_grammars(draw: st.DrawFn) -> OracleGrammar:
    terminals = draw(st.lists(st.sampled_from(_KEYWORDS + _REGEXES), min_size=1, max_size=5, unique=True))
    heads = _RULES[: draw(st.integers(1, 3))]
    symbols: list[Symbol] = [*terminals, *heads]
    way = st.lists(st.sampled_from(symbols), max_size=3).map(tuple)
    ways = st.lists(way, min_size=1, max_size=3, unique=True).map(tuple)
    rules = tuple((head, draw(ways)) for head in heads)
    skip = draw(st.lists(st.sampled_from(_SKIPS), max_size=1))
    contextual = draw(st.booleans())
    ambiguous = contextual and draw(st.booleans())
    if contextual or draw(st.booleans()):
        skip.append(draw(st.sampled_from(_BLANKS)))
    return OracleGrammar(rules, tuple(skip), contextual, ambiguous)
