"""Our verdicts compared with the verdicts of independent parsers, in both directions, on thousands of inputs."""

import csv
import io
import itertools
import json
from collections.abc import Callable
from random import Random

import graphql as graphql_core
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from pycparser import c_generator, c_parser

from aici_controllers.catalog import grammar_names, grammar_path
from tests.grammars.node_oracles import need_oracle
from tests.grammars.oracles import ORACLES, Verdict, luaparser, sqlglot_
from tests.grammars.part_lexemes import AVOID, PARTS, WITHOUT_SPACES
from tests.grammars.part_lexemes import LEXEMES as PART_LEXEMES
from tests.grammars.samples import Mutations, samples
from tests.grammars.sentences import Lexemes, Sentences
from tests.grammars.verdicts import verdicts
from tests.support.scale import scaled
from tests.support.tool_guest import ToolGuest

_numbers = itertools.count()

_LEXEMES: dict[str, Lexemes] = {
    **PART_LEXEMES,
    "arithmetic": {"NUMBER": ["0", "1.5", ".5", "1e3", "2."], "NAME": ["x", "f"]},
    "c89": {
        "IDENTIFIER": ["x", "y", "main"],
        "TYPE_NAME": ["size_t", "FILE"],
        "CONSTANT": ["0", "07", "0x1fUL", "1.5e3f", "'a'", "12L", ".5"],
        "STRING_LITERAL": ['"a"', r'L"\n\x41"'],
    },
    "csv": {"TEXT": ["a", " b "], "QUOTED": ['"a,b"', '""', '"x""y\r\n"']},
    "graphql": {"NAME": ["a", "b", "Foo"], "NUMBER": ["1", "-1.5e3"], "STRING": ['"a"'], "BLOCK_STRING": ['"""b"""']},
    "json": {"STRING": ['"a"', '""', r'"\u00e9\n"'], "NUMBER": ["0", "-1.5e+3", "12"]},
    "lua": {"NAME": ["x", "y", "f"], "NUMBER": ["1", "0x1fp4", ".5e3"], "STRING": ['"a"', r"'\065b'", "[[c]]"]},
    "markdown_table": {
        "NEWLINE": ["\n", "\r\n"],
        **{f"ROW_{n}": ["|" + " a \\|\\\\ |" * n, "|" + "|" * n, "|" + "`b` é|" * n + " "] for n in range(1, 13)},
        **{f"DASHES_{n}": ["|" + "-|" * n, "|" + " :--: |" * n] for n in range(1, 13)},
    },
    "sql": {"name": ["a", "b", '"Q"'], "NUMBER": ["1", "2.5"], "STRING": ["'s'"], "PLACEHOLDER": ["?"]},
    "toml": {
        "COMMENT": ["# c", "#"],
        "NEWLINE": ["\n", "\r\n"],
        "BARE_KEY": lambda _: f"k{next(_numbers)}",  # defining a key twice is not the grammar's business
        "BASIC_STRING": lambda _: f'"s{next(_numbers)}"',
        "LITERAL_STRING": lambda _: f"'l{next(_numbers)}'",
        "MULTI_LINE_BASIC_STRING": ['"""a\n""b"""'],
        "MULTI_LINE_LITERAL_STRING": ["'''x'''"],
        "NUMBER": ["1", "-1.5e3", "0xff", "inf"],
        "DATE_TIME": ["1979-05-27", "07:32:00", "1979-05-27 07:32:00Z"],
    },
}
# Constructs that the other parser may refuse for other reasons than the syntax.
_AVOID = {
    **AVOID,
    "c89": ["untyped_specifiers", "plain_declarator", "plain_struct_declarator_list", "typedef"],
    # sqlglot: * EXCEPT (a) is BigQuery's, ESCAPE needs a string, a bug, what is no query, what one dialect has
    "sql": [
        "EXCEPT",
        "ESCAPE",
        "LATERAL",
        "change",
        "locks",
        "within_group",
        "MATERIALIZED",
        "ORDINALITY",
        "number_of_rows",
        "fetch",
        "bound",
        "AT",
        "like",
        "ISNULL",
        "NOTNULL",
        "JSON",
        "==",
        "<=>",
        "~",
        "~*",
        "!~",
        "!~*",
        "@>",
        "<@",
        "@@",
        "separator",
        "%s",
        "OVERLAY",
        "TRIM",
        "ROW",
        "ARRAY",
        "[",
        "->",
        "->>",
        "#>",
        "#>>",
        "short_type",
        "INTERVAL",
        "POSITION",
        "SUBSTRING",
    ],
    "lua": ["break", "goto", "::", "...", "const", "close"],
}


def _disagreements(
    tool: ToolGuest, name: str, texts: list[str], *, judged: float, oracle: Callable[[str], Verdict] | None = None
) -> list[tuple[str, bool]]:
    """Return the texts on which we are wrong, with our verdict. At least the share `judged` must have been compared."""
    need_oracle(name)
    opinions = [(oracle or ORACLES[name])(text) for text in texts]
    assert sum(opinion is not None for opinion in opinions) > len(opinions) * judged
    ours = verdicts(tool, name, texts)
    pairs = zip(texts, ours, opinions, strict=True)
    wrong = [(text, our) for text, our, opinion in pairs if opinion is not None and our != opinion]
    return [(text, our) for text, our in wrong if our or name not in PARTS]


def _text(name: str) -> str:
    # Whether a type name is declared as something else is beyond our convention.
    declares = "direct_declarator\n    : IDENTIFIER\n    | TYPE_NAME\n"
    return grammar_path(name).read_text(encoding="utf-8").replace(declares, "direct_declarator\n    : IDENTIFIER\n")


@pytest.mark.parametrize("name", grammar_names())
def test_mutations(grammar_tool: ToolGuest, name: str) -> None:
    good, bad = samples(name)
    mutations, random = Mutations([text for text in good + bad if len(text) < 150]), Random(1)
    texts = [mutations.one(random) for _ in range(scaled(1000))]
    assert _disagreements(grammar_tool, name, texts, judged=0.5) == []


@pytest.mark.parametrize("name", [name for name in grammar_names() if name in _LEXEMES])
def test_sentences(grammar_tool: ToolGuest, name: str) -> None:
    """Every sentence of the grammar is well-formed, unless precedence forbids the sentence: then no parser accepts
    the text."""
    between = "" if name in WITHOUT_SPACES else " "
    grammar = _text(name)
    sentences = Sentences(grammar, _LEXEMES[name], avoid=_AVOID.get(name, ()), between=between)
    random = Random(2)
    texts = [sentences.one(random, random.randrange(5, 60)) for _ in range(scaled(300))]
    assert sum(verdicts(grammar_tool, name, texts)) > len(texts) * 0.9
    oracle = sqlglot_ if name == "sql" else None  # SQLite lacks many constructs of the grammar
    assert _disagreements(grammar_tool, name, texts, judged=0.5, oracle=oracle) == []


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=scaled(10), deadline=None)
@given(values=st.lists(_VALUES, min_size=30, max_size=30), seed=st.integers(0, 2**32))
def test_json_dumps(grammar_tool: ToolGuest, values: list[object], seed: int) -> None:
    random = Random(seed)
    texts = [
        json.dumps(value, ensure_ascii=random.random() < 0.5, indent=random.choice([None, 0, 2])).encode(
            errors="replace"
        )
        for value in values
    ]
    assert all(verdicts(grammar_tool, "json", [text.decode() for text in texts]))


_FIELDS = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n"), max_size=6)


@settings(max_examples=scaled(10), deadline=None)
@given(
    tables=st.lists(
        st.lists(st.lists(_FIELDS, min_size=1, max_size=4), min_size=1, max_size=4), min_size=20, max_size=20
    ),
    end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
)
def test_csv_writer(grammar_tool: ToolGuest, tables: list[list[list[str]]], end: str, quoting: int) -> None:
    texts = []
    for table in tables:
        out = io.StringIO(newline="")
        csv.writer(out, lineterminator=end, quoting=quoting).writerows(table)  # type: ignore[arg-type]
        texts.append(out.getvalue())
    assert all(verdicts(grammar_tool, "csv", texts))


def test_rendered_again(grammar_tool: ToolGuest) -> None:
    """The independent parsers read our sentences and print the sentences in their own style: our verdicts on the
    prints agree."""
    for name, render in {
        "c89": lambda text: c_generator.CGenerator().visit(c_parser.CParser().parse(text)),
        "graphql": lambda text: graphql_core.print_ast(graphql_core.parse(text)),
    }.items():
        sentences = Sentences(_text(name), _LEXEMES[name], avoid=_AVOID.get(name, ()))
        random, texts = Random(3), []
        while len(texts) < scaled(100):
            text = sentences.one(random, 40)
            if ORACLES[name](text) and not any(word in text for word in ("size_t", "FILE")):
                texts.append(render(text))
        assert _disagreements(grammar_tool, name, texts, judged=0.8) == []


def test_luaparser(grammar_tool: ToolGuest) -> None:
    sentences = Sentences(
        grammar_path("lua").read_text(), {**_LEXEMES["lua"], "NUMBER": ["1", "2.5"]}, avoid=_AVOID["lua"]
    )
    random = Random(4)
    texts = [sentences.one(random, 25) for _ in range(scaled(60))]
    accepted = verdicts(grammar_tool, "lua", texts)
    assert [text for text, ours in zip(texts, accepted, strict=True) if ours and not luaparser(text)] == []


def test_sqlglot_writes_what_we_read(grammar_tool: ToolGuest) -> None:
    rendered = [
        sqlglot.parse_one(text).sql() for text in samples("sql").accept if "ROLLUP" not in text and sqlglot_(text)
    ]
    assert all(verdicts(grammar_tool, "sql", rendered))
