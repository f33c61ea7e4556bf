"""Patterns in the syntax of Python's `re`, for hypothesis: flags, groups, anchors and escapes beside the plain
syntax."""

from hypothesis import strategies as st

# Letters whose cases are special, digits and spaces beyond ASCII, and the characters that have a meaning in patterns.
TEXT_ALPHABET = "abAB01_- \n\tkKſsSßµμ\u212aéÉ٣\u00a0€😀Ǆǅσς"
_LITERALS = [
    *"abkAsSK01_-,é٣σǅß€😀",
    " ",
    "\\n",
    "\\t",
    "\\x41",
    "\\u00e9",
    "\\U0001f600",
    "\\101",
    "\\ ",
    "\\.",
    "\\-",
]
_CLASSES = [
    *(r".", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S"),
    *(
        "[a-k]",
        "[^a]",
        "[ks]",
        "[^K-S]",
        r"[\d_-]",
        r"[^\w\n]",
        r"[\s\S]",
        "[]a]",
        "[^]-]",
        r"[\x41-\x43é]",
        # Up to the code points with four bytes in UTF-8, without U+1DF95: a case of ß in a newer Unicode than the
        # Unicode of `re`.
        "[€-\U00010000😀]",
        r"[\b\1]",
    ),
]
_ANCHORS = ["^", "$", r"\A", r"\Z"]
_QUANTIFIERS = ["*", "+", "?", "{2}", "{0,2}", "{1,}", "{,2}", "*?", "{1,2}?"]
_OPENINGS = ["(", "(?:", "(?i:", "(?s:", "(?m:", "(?-i:", "(?-s:", "(?ims:", "(?s-i:", "(?x: ", "(?P<{}>"]


def _atoms(anchors: bool) -> st.SearchStrategy[str]:
    kinds = [st.sampled_from(_LITERALS), st.sampled_from(_CLASSES)]
    return st.one_of(*kinds, st.sampled_from(_ANCHORS)) if anchors else st.one_of(*kinds)


def _grow(nodes: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.builds(lambda opening, body: f"{opening}{body})", st.sampled_from(_OPENINGS), nodes)
    return st.one_of(
        st.lists(nodes, max_size=3).map("".join),
        st.builds(lambda ways: f"(?:{'|'.join(ways)})", st.lists(nodes, min_size=1, max_size=3)),
        groups,
        st.builds(lambda body, q: f"(?:{body}){q}", nodes, st.sampled_from(_QUANTIFIERS)),
        st.builds("{}(?#note){}".format, nodes, nodes),
    )


def _named(pattern: str) -> str:
    """Give every named group a distinct name."""
    parts = pattern.split("(?P<{}>")
    return parts[0] + "".join(f"(?P<n{number}>{part}" for number, part in enumerate(parts[1:]))


def patterns(*, anchors: bool) -> st.SearchStrategy[str]:
    """Draw patterns that begin with (?u...) or (?a...): without a flag, \\d \\w \\s are ASCII here and Unicode in
    `re`."""
    flags = st.builds(
        lambda kind, more: f"(?{kind}{''.join(more)})",
        st.sampled_from("ua"),
        st.lists(st.sampled_from("imsx"), unique=True),
    )
    bodies = st.recursive(_atoms(anchors), _grow, max_leaves=7).map(_named)
    return st.builds("{}{}".format, flags, bodies)
