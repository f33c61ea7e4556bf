"""Grammars in Lark and GBNF: a table of grammars, each with texts that pass and texts that fail.

llguidance is asked the same of every grammar in Lark that it reads, lark of every grammar that needs nothing of
llguidance's.
"""

from pathlib import Path
from typing import NamedTuple

import lark
import pytest

from aici_controllers.grammar_check import check_grammar
from aici_controllers.notations.convert import converted
from aici_controllers.notations.detect import told_syntax
from aici_controllers.notations.reading import beside, read_notation
from aici_controllers.notations.tree import GrammarSyntax
from tests.support.notation_oracles import Llguidance, guest_verdicts
from tests.support.tool_guest import ToolGuest


class Case(NamedTuple):
    name: str
    grammar: str
    passes: tuple[str, ...]
    fails: tuple[str, ...]
    oracles: str = "lark llguidance"


LARK = [
    Case(
        "a calculator",
        """
        ?start: sum
        ?sum: product | sum "+" product -> add | sum "-" product -> sub
        ?product: atom | product "*" atom | product "/" atom
        ?atom: NUMBER -> number | "-" atom -> neg | "(" sum ")"
        %import common.NUMBER
        %import common.WS_INLINE
        %ignore WS_INLINE
        """,
        ("1", "1+2", "3 * ( 4 - -5.5e3 ) / 2", "--1"),
        ("", "1+", "(1", "1 2", "1 + a"),
    ),
    Case(
        "repetition",
        'start: "a" ~ 2 "b" ~ 1..3 ["c"] "d"* "e"+ ("f" | "g" "h")?',
        ("aabe", "aabbbcddee", "aabef", "aabegh"),
        ("abe", "aabbbbe", "aab", "aabeg", "aabecc"),
    ),
    Case(
        "templates",
        """
        start: "[" list{item} "]" | pair{WORD, NUMBER}
        list{x}: (x ("," x)*)?
        pair{a, b}: a ":" b
        item: NUMBER | "[" list{item} "]"
        WORD: /[a-z]+/
        NUMBER: /[0-9]+/
        """,
        ("[]", "[1]", "[1,[2,[]],3]", "ab:12"),
        ("[1,]", "[ab]", "12:ab", "[[1]"),
        "lark",
    ),
    Case(
        "extend and override",
        """
        start: WORD digit+
        WORD: "a"
        digit: "0"
        %extend WORD: "b"
        %override digit: "1" | "2"
        """,
        ("a1", "b121"),
        ("c1", "a0", "a"),
        "lark",
    ),
    Case(
        "flags of texts and regexes",
        'start: "select"i /[a-f]+/i ";" | /a.b/s | "x".."z"',
        ("SELECTaF;", "SeLeCtb;", "a\nb", "y"),
        ("selectg;", "ab", "a\n\nb", "w"),
    ),
    Case(
        "names that only look like keywords",
        """
        start: "if" NAME "then" NAME
        NAME: /[a-z]+/
        %ignore " "
        """,
        ("if a then b", "if iffy then thenb"),
        ("if a", "ifa then b c"),
    ),
    Case(
        "escapes in texts",
        r'start: "\"" "\\" "\n" "\t" "é" "/"',
        ('"\\\n\té/',),
        ('"\\n', '"\\\n\te/'),
    ),
    Case(
        "comments and lines",
        """
        // a comment
        start: "a" // at the end of a line
             | "b"
             // between alternatives
             | rest
        rest: "c"
            "d"
        """,
        ("a", "b", "cd"),
        ("c", "d", "ab"),
        "",
    ),
    Case(
        "comments of programs are skipped",
        r"""
        start: (NAME "=" NUMBER ";")*
        %import common (CNAME, INT, WS, CPP_COMMENT, C_COMMENT)
        NAME: CNAME
        NUMBER: INT
        %ignore WS
        %ignore CPP_COMMENT
        %ignore C_COMMENT
        """,
        ("", "a=1;", "a = 1; // one\nb=2;", "a /* x * y */ = /***/ 3 ;"),
        ("a=1", "a=b;", "a /* =1;"),
    ),
    Case(
        "strings, shortest match and look-around",
        r"""
        start: STRING "," BLOCK "," QUOTED
        STRING: /"(?!"").*?(?<!\\)(\\\\)*?"/
        BLOCK: /\/\*.*?\*\//s | /<(?:\*(?!>)|[^*])*\*>/
        QUOTED: /'(?:(?!')[^\\]|\\.)*'/
        """,
        (r'"a\"b",/* * / */,' + r"'\''", r'"a\\",/***/,' + "'x'", '"",<*a**b**>,' + "'x'"),
        (r'"a"b",/**/,' + "'x'", '"a",/* */ */,' + "'x'", '"a",/**/,' + "'''", '"",<*>*>,' + "'x'"),
        "lark",
    ),
    Case(
        "left and right recursion, and both",
        """
        start: e
        e: e "+" e | e "*" e | "(" e ")" | N
        N: /[0-9]/
        """,
        ("1", "1+2*3+4", "(1+2)*3"),
        ("1+", "(1", "12"),
    ),
    Case(
        "a terminal that may be empty",
        'start: "a" REST "b" | /x*/ "c"\nREST: /[0-9]*/',
        ("ab", "a12b", "c", "xxc"),
        ("a1", "x", "b"),
        "llguidance",
    ),
    Case(
        "guidance's capture and temperature",
        """
        %llguidance {}
        start: year
        year[capture, temperature=0]: YEAR
        YEAR: /19../
        """,
        ("1945",),
        ("2045", "19"),
        "llguidance",
    ),
    Case(
        "and, not, lazy, suffix",
        """
        %llguidance {}
        start: WORD "." | block | tail
        WORD: /[a-z]+/ & ~/if|else/
        block[lazy]: /<.*>/
        tail[suffix="END"]: /[A-Z]*/
        """,
        ("iff.", "a.", "<a>", "XEND", "END"),
        ("if.", "else.", "<a>b>", "ENDEND"),
        "llguidance",
    ),
    Case(
        "a schema inside of a grammar",
        'start: "call" NAME obj ";"\nNAME: /[a-z]+/\n%ignore " "\n'
        'obj: %json {"properties": {"a": {"type": "integer"}, "b": {"const": "x\\"}"}}, "required": ["a"]}',
        ('call f {"a": 1};', 'call f{"a": 1, "b": "x\\"}"} ;'),
        ('call f {"b": 1};', 'call f {"a": 1.5};', 'call {"a": 1};'),
        "",
    ),
    Case(
        "parts of a text",
        '%llguidance {}\nstart: "<" %regex {"substring_words": "one two three"} ">"',
        ("<>", "<one>", "<two three>", "<one two three>"),
        ("<tw>", "<one three>", "<three two>"),
        "llguidance",
    ),
]

GBNF = [
    Case("texts", 'root ::= "yes" | "no"', ("yes", "no"), ("", "yess", "maybe"), ""),
    Case(
        "rules over lines, comments, escapes",
        'root ::= # comment\n  "a\\n\\x41\\u00e9\\U0001F600\\"\\\\" (\n  "b" |\n  other\n) # end\nother ::= "c"\n  "d"',
        ('a\nAé😀"\\b', 'a\nAé😀"\\cd'),
        ("a", 'a\nAé😀"\\c'),
        "",
    ),
    Case(
        "classes",
        r"root ::= [a-c-] [^a-c\n] [\]\\^] . [\x30-\x39]? [é-ü]",
        ("ax]\n5é", "-X^.ö", "cd\\ñ0ü"),
        ("dx]x5é", "aa]x5é", "ax]x5e"),
        "",
    ),
    Case(
        "repetition",
        'root ::= "a"* "b"+ "c"? ("d" "e"){2} [f-h]{1,3} "i"{2,} (x y)*\nx ::= "x"\ny ::= "y"?',
        ("bdedefii", "aabbcdedefghiiixyxxy"),
        ("dedefii", "bdefii", "bdedefi", "bdedefghhhii", "bdedefiiy"),
        "",
    ),
    Case(
        "nothing is read longer than a rule wants",
        'root ::= word "end" | [0-9]* "7"\nword ::= [a-z]+',
        ("xend", "endend", "7", "12377"),
        ("end", "xen", "123"),
        "",
    ),
    Case(
        "ambiguity and left recursion",
        'root ::= e\ne ::= e "+" e | e e | [a-b] | "(" e? ")"\n',
        ("a", "a+b", "ab+ba()", "((a)+())"),
        ("", "a+", "(a", "+a"),
        "",
    ),
    Case(
        "rules that begin with each other",
        'root ::= a\na ::= b "x" | "1"\nb ::= c? a "y" | "2"\nc ::= a | "3"',
        ("1", "2x", "1yx", "11yx", "31yx", "2x2xyx"),
        ("", "x", "1x", "3x"),
        "",
    ),
    Case(
        "no regular language",
        'root ::= "a" root "b" | ""',
        ("", "ab", "aaabbb"),
        ("a", "abb", "aab"),
        "",
    ),
    Case(
        "palindromes",
        'root ::= "a" root "a" | "b" root "b" | "a" | "b" | ""',
        ("", "a", "abba", "babab"),
        ("ab", "abb", "baab a"),
        "",
    ),
]


@pytest.mark.parametrize("case", LARK, ids=lambda case: case.name)
def test_lark(case: Case, grammar_tool: ToolGuest) -> None:
    reading = read_notation(case.grammar, name="x.lark")
    assert reading.error is None
    texts = (*case.passes, *case.fails)
    ours = guest_verdicts(grammar_tool, reading.guest.text, texts)
    expected = [True] * len(case.passes) + [False] * len(case.fails)
    assert [accepted for accepted, _ in ours] == expected
    if "llguidance" in case.oracles:
        oracle = Llguidance(case.grammar)
        assert not oracle.problem
        assert [oracle.verdict(text)[0] for text in texts] == expected
    if "lark" in case.oracles.split():
        parser = lark.Lark(case.grammar, parser="earley")
        assert [_parses(parser, text) for text in texts] == expected


def _parses(parser: lark.Lark, text: str) -> bool:
    try:
        parser.parse(text)
    except lark.exceptions.LarkError:
        return False
    return True


@pytest.mark.parametrize("case", GBNF, ids=lambda case: case.name)
def test_gbnf(case: Case, grammar_tool: ToolGuest) -> None:
    reading = read_notation(case.grammar, name="x.gbnf")
    assert reading.error is None
    ours = guest_verdicts(grammar_tool, reading.guest.text, (*case.passes, *case.fails))
    assert [accepted for accepted, _ in ours] == [True] * len(case.passes) + [False] * len(case.fails)


DETECTED: list[tuple[str, str, GrammarSyntax]] = [
    ("x.gbnf", "start: a", "gbnf"),
    ("x.lark", "root ::= a", "lark"),
    ("x.y", "", "y"),
    ("", 'root ::= "a"', "gbnf"),
    ("", '# comment: with a colon\nroot   ::=\n "a"', "gbnf"),
    ("", 'start: "a"', "lark"),
    ("", '%llguidance {}\nstart: "::="', "lark"),
    ("", "%import common.WS\nstart: WS", "lark"),
    ("", '?start: a -> b\n!a.2: "x"', "lark"),
    ("", '%%\ns : "a" ;', "y"),
    ("", '%start s\n%%\ns: "a" ;', "y"),
    ("", 's : "a" ;', "y"),
    ("", "nonsense", "y"),
]


@pytest.mark.parametrize(("name", "text", "syntax"), DETECTED)
def test_the_notation_is_told_by_extension_and_text(name: str, text: str, syntax: GrammarSyntax) -> None:
    assert told_syntax(text, name).syntax == syntax
    assert told_syntax(text, name, "gbnf").syntax == "gbnf"


WRONG: list[tuple[GrammarSyntax, str, tuple[int, int], str]] = [
    ("lark", 'a: "x"', (1, 1), "begins with the rule start"),
    ("lark", "start: nme\nname: /a/", (1, 8), "nme is not defined: did you mean name?"),
    ("lark", 'start: "a', (1, 8), "has no end"),
    ("lark", "start: a\na: /x(/", (2, 6), "missing ')'"),
    ("lark", "start: /a\\1/", (1, 10), "back-references"),
    ("lark", 'start: "a"\nstart: "b"', (2, 1), "the first is in line 1"),
    ("lark", 'start: "a" <|x|>', (1, 12), "special tokens"),
    ("lark", "start: X\n%declare X", (1, 8), "declared with %declare"),
    ("lark", "%import common.NUMBR\nstart: NUMBR", (1, 1), "did you mean NUMBER?"),
    ("lark", "%import python.NAME\nstart: NAME", (1, 1), "there is `common` alone"),
    ("lark", "start: A\nA: B\nB: A", (3, 4), "contains itself"),
    ("lark", "start: A\nA: b\nb: /x/", (2, 4), "b is a rule"),
    ("lark", "start: x{A}\nx{a, b}: a b\nA: /a/", (1, 8), "is a template of 2 arguments"),
    ("lark", "start[stop=/x/]: /a/", (1, 1), "stop is not supported"),
    ("lark", 'start: %json {"a"}', (1, 18), "%json is followed by JSON"),
    ("lark", 'start: "a" ~ 3..2', (1, 11), "above the greatest"),
    ("lark", "start: a+\na: b\nb: a", (1, 1), "never end"),
    ("gbnf", 'rot ::= "a"', (1, 1), "did you mean rot?"),
    ("gbnf", 'root ::= item\nitm ::= "a"', (1, 10), "item is not defined: did you mean itm?"),
    ("gbnf", 'root ::= "a', (1, 10), "has no end"),
    ("gbnf", 'root ::= ("a"', (1, 10), "not closed"),
    ("gbnf", "root ::= [a-", (1, 10), "has no end"),
    ("gbnf", 'root ::= "\\q"', (1, 11), "escape \\q"),
    ("gbnf", "root ::= 'a'", (1, 10), "double quotes"),
    ("gbnf", 'root : "a"', (1, 6), "(Lark has : here)"),
    ("gbnf", "root ::= [z-a]", (1, 10), "goes backwards"),
    ("gbnf", 'root ::= "a" root', (1, 1), "never end"),
]


@pytest.mark.parametrize(("syntax", "text", "place", "says"), WRONG)
def test_errors_have_the_place_in_the_users_file(
    syntax: GrammarSyntax, text: str, place: tuple[int, int], says: str
) -> None:
    report = check_grammar(text, syntax=syntax)
    errors = [problem for problem in report.problems if problem.severity == "error"]
    assert (errors[0].line, errors[0].column) == place
    assert says in errors[0].message


_NOT_GBNF = ("and, not, lazy, suffix", "strings, shortest match and look-around", "a schema inside of a grammar")
CONVERTED = [case for case in LARK if case.name not in _NOT_GBNF]


@pytest.mark.parametrize("case", CONVERTED, ids=lambda case: case.name)
def test_lark_as_gbnf_accepts_the_same(case: Case, grammar_tool: ToolGuest) -> None:
    """Two words may run together in GBNF, which no text of these cases shows."""
    written = converted(case.grammar, "gbnf", syntax="lark").text
    reading = read_notation(written, syntax="gbnf")
    assert reading.error is None, written
    texts = [text for text in (*case.passes, *case.fails) if text != "if iffy then thenb"]
    passes = [accepted for accepted, _ in guest_verdicts(grammar_tool, reading.guest.text, texts)]
    assert passes == [text in case.passes for text in texts], written


@pytest.mark.parametrize("case", GBNF, ids=lambda case: case.name)
def test_gbnf_through_the_guests_syntax_is_the_same(case: Case, grammar_tool: ToolGuest) -> None:
    through = converted(converted(case.grammar, "y", syntax="gbnf").text, "gbnf", syntax="y").text
    reading = read_notation(through, syntax="gbnf")
    assert reading.error is None, through
    ours = guest_verdicts(grammar_tool, reading.guest.text, (*case.passes, *case.fails))
    assert [accepted for accepted, _ in ours] == [True] * len(case.passes) + [False] * len(case.fails), through


@pytest.mark.parametrize("case", [case for case in LARK if "llguidance" in case.oracles], ids=lambda case: case.name)
def test_lark_through_lark_is_the_same(case: Case) -> None:
    """What is written as Lark is Lark, as llguidance has it."""
    through = converted(converted(case.grammar, "y", syntax="lark").text, "lark", syntax="y").text
    oracle = Llguidance(through)
    assert not oracle.problem, through
    assert all(oracle.verdict(text)[0] for text in case.passes), through
    assert not any(oracle.verdict(text)[0] for text in case.fails), through


def test_files_import_from_the_files_beside_them(tmp_path: Path, grammar_tool: ToolGuest) -> None:
    names = '%import common.INT\nname: FIRST rest\nrest: INT?\nFIRST: LETTER\nLETTER: "a".."c"\n'
    (tmp_path / "names.lark").write_text(names)
    text = '%import .names.name -> word\n%import .names (FIRST)\nstart: word FIRST rest\nrest: "!"'
    reading = read_notation(text, name="x.lark", load=beside(tmp_path))
    assert reading.error is None
    verdicts = guest_verdicts(grammar_tool, reading.guest.text, ["a12b!", "bc!", "a12!", "aa"])
    assert [accepted for accepted, _ in verdicts] == [True, True, False, False]
    missing = read_notation("%import .nowhere.x\nstart: x", name="x.lark", load=beside(tmp_path))
    assert missing.error
    assert "%import .nowhere" in missing.error[1]
