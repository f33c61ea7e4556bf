"""The report of `check_grammar`: a table of grammars and their problems, with positions."""

import functools
from typing import NamedTuple

import pytest

from aici_base.errors import UsageError
from aici_controllers.catalog import grammar_names, grammar_path, guest_path
from aici_controllers.grammar_check import GrammarReport, accepts, check_grammar
from tests.support.tool_guest import ToolGuest


@functools.cache
def _guest() -> ToolGuest:
    return ToolGuest(guest_path("grammar"))


def check(text: str) -> GrammarReport:
    """`check_grammar` with a guest compiled once."""
    return GrammarReport.from_answer(_guest().ask({"check": text}))


class Case(NamedTuple):
    name: str
    text: str
    severity: str
    place: tuple[int, int]
    says: str
    example: str = ""


READER = [
    Case("action", '%%\ns : "a" { $$ = "}"; /* } */ } | "b" { } ;', "warning", (2, 9), "actions {...} are skipped"),
    Case("open action", '%%\ns : "a" { $$ = 1; ;', "error", (2, 9), "no end: }"),
    Case("stray brace", '%%\ns : "a" } ;', "error", (2, 9), "closes no block"),
    Case("prologue", '%{ int x; %}\n%%\ns : "a" ;', "warning", (1, 1), "%{...%} is skipped"),
    Case("open prologue", '%{ int x;\n%%\ns : "a" ;', "error", (1, 1), "no end: %}"),
    Case("union", '%union { int i; char *s; }\n%%\ns : "a" ;', "warning", (1, 1), "%union is skipped"),
    Case("type", '%type <i> s "a"\n%%\ns : "a" ;', "warning", (1, 1), "%type is skipped"),
    Case("old spelling", '%pure_parser\n%%\ns : "a" ;', "warning", (1, 1), "%pure_parser is skipped"),
    Case("error symbol", '%%\ns : "a" | error ";" ;', "warning", (2, 11), "recover from mistakes"),
    Case("expect nothing", '%expect\n%%\ns : "a" ;', "error", (1, 1), "number of conflicts"),
    Case("prefer a rule", '%prefer s\n%%\ns : "a" ;', "error", (1, 9), "quoted text itself"),
    Case("prefer twice", '%prefer "a" "a"\n%%\ns : "a" ;', "error", (1, 13), "second time"),
    Case("directive", '%strat s\n%%\ns : "a" ;', "error", (1, 1), "did you mean %start?"),
    Case("strange directive", '%glrr\n%%\ns : "a" ;', "error", (1, 1), "unknown directive %glrr"),
    Case("%skip", '%skip " "\n%%\ns : "a" ;', "error", (1, 1), "in the rule SKIP"),
    Case("%prec outside", '%prec "+"\n%%\ns : "a" ;', "error", (1, 1), "inside an alternative"),
    Case("option", '%option contextul\n%%\ns : "a" ;', "error", (1, 9), "unknown option contextul"),
    Case("two starts", '%start s\n%start s\n%%\ns : "a" ;', "error", (2, 1), "second time"),
    Case("start of no rule", '%start expression\n%%\nexpresion : "a" ;', "error", (1, 8), "did you mean expresion?"),
    Case("no %%", 's : "a" ;', "error", (1, 1), "%% is missing before the first rule"),
    Case("nothing", "", "error", (1, 1), "%% is missing"),
    Case("no rules", "%%\n", "error", (2, 1), "no rules"),
    Case("only SKIP", '%%\nSKIP : " " ;', "error", (0, 0), "no rule but"),
    Case("quote", '%%\ns : "a\n ;', "error", (2, 5), "no end"),
    Case("empty quote", '%%\ns : "" ;', "error", (2, 5), "%empty"),
    Case("comment", '%%\ns : "a" ; /* ...', "error", (2, 11), "*/ is missing"),
    Case("bare regex", "%%\ns : /a/ ;", "error", (2, 5), "inside quotes"),
    Case("character", '%%\né ü : "a" ;', "error", (2, 1), "unexpected character 'é'"),
    Case("after é", '%%\ns : "é" ? ;', "error", (2, 9), "unexpected character '?'"),
    Case("semicolon", '%%\ns : t\nt : "a" ;', "warning", (3, 1), "';' is missing at the end of the rule s"),
    Case("no semicolon", '%%\ns : "a" : "b" ;', "error", (2, 9), "';' is missing at the end of the rule s"),
    Case(
        "undefined",
        '%%\nexpr : "a" exprr ;',
        "error",
        (2, 12),
        "exprr is neither a rule nor declared with %token: did you",
    ),
    Case("twice", '%%\ns : "a" ;\ns : "b" ;', "error", (3, 1), "the first is in line 2"),
    Case("token and rule", '%token s\n%%\ns : "a" ;', "error", (1, 8), "is also a rule"),
    Case("precedence of a rule", '%left PLUS\n%%\ns : PLUS ; PLUS : "+" ;', "error", (1, 7), "PLUS is a rule"),
    Case("precedence twice", '%left "+"\n%right "+"\n%%\ns : "+" ;', "error", (2, 8), "from line 1"),
    Case("%prec of nothing", '%%\ns : "a" %prec HIGH ;', "error", (2, 15), "HIGH has no precedence"),
    Case("%empty", '%%\ns : %empty "a" ;', "error", (2, 12), "alone"),
    Case("SKIP of two", '%%\ns : "a" ;\nSKIP : " " "b" ;', "error", (3, 8), "one quoted text"),
    Case("SKIP used", '%%\ns : "a" SKIP ;\nSKIP : " " ;', "error", (2, 9), "SKIP"),
    Case("skipped and used", '%%\ns : "a" " " ;\nSKIP : " " ;', "error", (2, 5), "under SKIP"),
    Case("bad regex", '%%\ns : "a" "/b[/" ;', "error", (2, 12), "in the regex /b[/"),
    Case("nullable regex", '%%\ns : "/a*/" ;', "error", (2, 5), "matches the empty string"),
    Case("never ends", '%%\ns : "a" s ;', "error", (2, 1), "s can never end"),
    Case("unreachable", '%%\ns : "a" ;\nt : "b" ;', "warning", (3, 1), "t is never used"),
    Case("unused token", "%token A B\n%%\ns : A ;", "warning", (1, 10), "B is declared and never used"),
    Case("escape", '%%\ns : "\\n" ;', "warning", (2, 5), "no escapes"),
]

LEXER = [
    Case(
        "keyword takes all",
        '%%\ns : "if" A | A ;\nA : "/if/" ;\nSKIP : " " ;',
        "error",
        (3, 5),
        'A can never be read: all its texts are also "if"',
        "if",
    ),
    Case(
        "longer pattern takes all",
        '%%\ns : A | B ;\nA : "/[ab]/" ;\nB : "/a|b|c|d/" ;',
        "error",
        (3, 5),
        "A can never be read",
        "a",
    ),
    Case(
        "numbers side by side",
        '%%\ns : N N ;\nN : "/[0-9]+/" ;',
        "error",
        (3, 5),
        "nothing can end N where N must follow",
        "0",
    ),
    Case(
        "a comment without end",
        '%%\ns : A ";" ;\nA : "/[a-z]+/" ;\nSKIP : "/#.*/" ;',
        "error",
        (4, 8),
        "nothing can end /#.*/",
        "#",
    ),
    Case("one form of a lexeme has no end", '%%\ns : A "b" ;\nA : "/a|cb+/" ;', "error", (3, 5), 'where "b" must', "c"),
]

FINE = [
    ("numbers with blanks", '%%\ns : N N ;\nN : "/[0-9]+/" ;\nSKIP : " " ;'),
    ("a comment that ends", '%%\ns : A ";" ;\nA : "/[a-z]+/" ;\nSKIP : "/#.*/" | "/\\n/" ;'),
    ("a keyword among names", '%%\ns : "if" A | A ;\nA : "/[a-z]+/" ;\nSKIP : " " ;'),
    ("both quotes, comments", '%% // one\ns : \'a"\' | "b\'" /* two */ | "/[/]/" ;\n%%\nwhatever { this "is'),
    ("tokens", '%token AND\n%left "AND"\n%%\ns : s AND s | "a" ;\nSKIP : " " ;'),
    ("pseudo precedence", '%left "-"\n%left NEG\n%%\ns : s "-" s | "-" s %prec NEG | "a" ;\nSKIP : " " ;'),
]


@pytest.mark.parametrize("case", [*READER, *LEXER], ids=lambda case: case.name)
def test_problems(case: Case) -> None:
    found = [problem for problem in check(case.text).problems if case.says in problem.message]
    assert found, check(case.text).problems
    assert (found[0].severity, (found[0].line, found[0].column)) == (case.severity, case.place)
    assert case.example in found[0].example


@pytest.mark.parametrize(("name", "text"), FINE, ids=lambda value: value if len(value) < 40 else "")
def test_fine(name: str, text: str) -> None:
    report = check(text)
    assert report.ok
    assert report.problems == []


def test_several_problems_are_reported_in_the_order_of_the_file() -> None:
    text = '%left "+" "+"\n%%\nexpr : expr "+" exp { x } | NUMBER ;\nexpr : "/[/" ;\nloop : loop "x"\n'
    problems = check(text).problems
    assert [problem.line for problem in problems] == sorted(problem.line for problem in problems)
    said = " ".join(problem.message for problem in problems)
    for word in (
        "precedence already",
        "actions {...} are skipped",
        "exp is neither",
        "NUMBER is neither",
        "second time",
        "missing",
    ):
        assert word in said


_DANGLING = '%%\ns : "i" s | "i" s "e" s | "a" ;'
_YACC = """
%{ #include <stdio.h>  /* a comment with "quotes" and % signs */ %}
%union { int number; struct { char *text; } word; }
%token <number> NUMBER 258 "0" <word> WORD
%type <number> expr
%define api.value.type {int}
%code requires { typedef int T; }
%parse-param {void *scanner}
%left '+' '-'
%precedence NEG
%start expr
%expect 0
%%
expr[result]
  : expr[left] '+' expr[right]  { $result = $left + $right; if ('}') puts("}"); }
  | '-' expr %prec NEG          { $$ = -$2; }
  | NUMBER { printf("%d", $1); } <word>{ mid(); } WORD
  | error ';' { yyerrok; }
  | '(' expr ')' %dprec 1
%%
int main() { return yyparse(); }
"""


def test_files_of_yacc_are_read_and_what_is_left_out_is_said_once() -> None:
    report = check(_YACC)
    assert report.ok
    said = [problem.message for problem in report.problems]
    for word in ("%{", "%union", "%type", "%define", "%code", "%parse-param", "actions", "error", "';' is missing"):
        assert sum(word in message for message in said) == 1, (word, said)
    assert report.summary is not None
    assert (report.summary.rules, report.summary.productions, report.summary.settled) == (1, 4, 2)
    for text, accepted in [("0WORD+-0WORD", True), ("(0WORD)", True), ("NUMBERWORD", False), ("0WORD+", False)]:
        assert accepts(_YACC, text).accepted == accepted


@pytest.mark.parametrize(
    ("declarations", "engine", "shifted", "followed", "warns"),
    [
        ("", "lr", 1, 0, "it continues, as with yacc"),
        ("%expect 1\n", "lr", 1, 0, ""),
        ('%nonassoc "i"\n%nonassoc "e"\n', "lr", 0, 0, ""),
        ("%glr-parser\n", "general", 0, 1, ""),
    ],
)
def test_a_conflict_is_shifted_with_a_warning(
    declarations: str, engine: str, shifted: int, followed: int, warns: str
) -> None:
    report = check(declarations + _DANGLING)
    assert report.summary is not None
    assert (report.summary.engine, report.summary.shifted, report.summary.followed) == (engine, shifted, followed)
    assert [problem.message for problem in report.problems if warns not in problem.message] == []
    assert len(report.problems) == bool(warns)
    assert all(accepts(declarations + _DANGLING, text).accepted for text in ("iiaea", "iaea", "iiaeaea"))


def test_reductions_in_conflict_are_both_followed() -> None:
    text = '%%\ns : x "c" | y "d" | "(" s ")" ;\nx : x "a" | "a" ;\ny : y "a" | "a" ;'
    report = check(text)
    assert report.ok
    assert report.summary is not None
    assert (report.summary.engine, report.summary.followed) == ("general", 1)
    assert "both are followed" in report.problems[0].message
    for sentence, accepted in [("aaac", True), ("((aad))", True), ("aa", False), ("(aad", False), ("c", False)]:
        assert accepts(text, sentence).accepted == accepted
    assert set(accepts(text, "((aa").expected) == {'"a"', '"c"', '"d"'}


def test_with_contextual_lexing_only_what_competes_counts() -> None:
    shadowed = 'A ;\nA : "/if/" ;\nSKIP : " " ;'
    assert not check(f'%%\ns : "if" {shadowed}').ok
    assert check(f'%option contextual\n%%\ns : "if" {shadowed}').ok  # "if" does not compete behind "if"
    assert not check(f'%option contextual\n%%\ns : "if" | {shadowed}').ok
    numbers = 's : N N ;\nN : "/[0-9]+/" ;'
    assert not check(f"%option contextual\n%%\n{numbers}").ok


@pytest.mark.parametrize("name", grammar_names())
def test_shipped_grammars_have_no_problem(name: str) -> None:
    problems = check(grammar_path(name).read_text()).problems
    # Many words in many contexts.
    is_large = name in ("html", "latex_math", "typescript")
    assert ["the lexer is too large to check" in problem.message for problem in problems] == [True] * is_large


def test_sizes_are_bounded_with_a_message() -> None:
    assert "1 MiB" in _first_error(check("%%\ns : 'a' ;" + " " * (1 << 20)))
    assert "4096" in _first_error(check("%%\n" + "".join(f's{n} : "{n}" ;\n' for n in range(3000))))
    assert "1024" in _first_error(check("%%\ns : " + "'a' " * 1025 + ";"))
    assert check("%%\ns : " + "'a' " * 1024 + ";").ok


def test_the_tables_of_a_large_grammar_are_bounded() -> None:
    rules = "".join(f's{n} : "{n}" s{n + 1} "x" | s{n + 1} ;\n' for n in range(800))
    report = check(f'%%\n{rules}s800 : "z" ;\n')
    assert "states" in _first_error(report)


def _first_error(report: GrammarReport) -> str:
    return next(problem.message for problem in report.problems if problem.severity == "error")


def test_the_summary() -> None:
    text = '%left "+"\n%%\ns : s "+" s | N ;\nN : "/[0-9]+/" ;\nSKIP : " " ;'
    summary = check_grammar(text).summary
    assert summary is not None
    assert (summary.rules, summary.productions, summary.terminals, summary.skipped) == (2, 3, 2, 1)
    assert (summary.states, summary.settled, summary.contextual) == (6, 1, False)
    assert (summary.engine, summary.shifted, summary.followed) == ("lr", 0, 0)


def test_accepts_says_where_and_what() -> None:
    grammar = '%%\nlist : NUMBER | list "," NUMBER ;\nNUMBER : "/[0-9]+/" ;\nSKIP : "/[ \\n]+/" ;'
    assert accepts(grammar, "1,\n 23, 4").accepted
    verdict = accepts(grammar, "1,\n 23; 4")
    assert not verdict.accepted
    assert (verdict.at, verdict.line, verdict.column, verdict.complete) == (6, 2, 4, True)
    assert set(verdict.expected) >= {'","', "end of input"}
    ended = accepts(grammar, "1,")
    assert not ended.accepted
    assert (ended.at, ended.complete, ended.expected) == (2, False, ["NUMBER"])


def test_accepts_refuses_a_grammar_with_errors() -> None:
    with pytest.raises(UsageError, match="line 2, column 5"):
        accepts("%%\ns : t ;", "a")


def test_a_text_with_ever_more_readings_ends_with_an_error() -> None:
    grammar = """
        root ::= r1
        r1 ::= r3 | "a" "a" | r2 root "a"
        r2 ::= "" | r1
        r3 ::= r2 r2 | r1 r1 | r3 root "c"
    """
    assert accepts(grammar, "aaaaaa", syntax="gbnf").accepted
    with pytest.raises(UsageError, match=r"line 1, column \d+: the text so far can be read in too many ways"):
        accepts(grammar, "aaaaaaccaaacaaaaaaaaaa", syntax="gbnf")
