"""Independent parsers for the shipped grammars.

A verdict is True (well-formed), False (not), or None: the parser is no judge of the text. If a parser is laxer than
the standard of the grammar, the verdict is corrected; grammars/README.md lists every such disagreement.
"""

import ast
import csv
import io
import json
import keyword
import logging
import re
import sqlite3
import tomllib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import graphql as graphql_core
import lupa.lua54
import sqlglot
import tree_sitter
import tree_sitter_c
from luaparser import ast as luaparser_ast
from pycparser import c_ast, c_parser

from tests.grammars import node_oracles, text_oracles

Verdict = bool | None

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # without a level, sqlglot logs every mistake


def c89(text: str) -> Verdict:
    text = re.sub(r"(?m)^[ \t\v\f]*#(.*\\\n)*.*", "", _without_comments(text))
    bare = re.sub(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", "0", text)
    names = set(re.findall(r"\b(?:\w+_t|FILE|va_list|jmp_buf)\b", text))
    if re.search(r"\\x(?![0-9a-fA-F])|\\[^'\"?\\abfnrtvx0-7]", text):
        return False  # escapes that pycparser accepts wrongly
    if re.search(
        r"enum[^{};]*\{[^{}]*,\s*\}|\(\s*\.\.\.|(?<![\w.])(0[bB]|0[xX][\da-fA-F]*[.pP]|[\d.]+\w*(ll|LL))", bare
    ):
        return False  # syntax of C99, C23 or GNU
    if any(re.search(rf"\b{name}\s*:|\bgoto\s+{name}\b", bare) for name in names):
        return None  # a type name as a label
    if re.search(r"\([^()]*\btypedef\b", bare):
        return None  # a constraint of C, not syntax: parameters have no storage class but register
    if re.search(r";\s*;", bare) and re.search(r"\b(struct|union)\b", bare):
        return None  # an empty declaration of a member, or an empty statement
    prelude = "".join(f"typedef int {name};" for name in sorted(names))
    try:
        tree = c_parser.CParser().parse(prelude + text)
    except c_parser.ParseError as error:
        meaning = (
            "Missing type|Invalid function def|Invalid multiple types|Invalid char|Typedef .* previously|Non-typedef"
        )
        return None if re.search(meaning, str(error)) else False
    return _c89(tree.ext[len(names) :], names, re.sub(r"\{.*?\}", "{}", bare, flags=re.DOTALL))


def _without_comments(text: str) -> str:
    literal_or_comment = r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|/\*.*?\*/|//[^\n]*"""
    return re.sub(literal_or_comment, _keep_strings, text, flags=re.DOTALL)


def _keep_strings(match: re.Match[str]) -> str:
    return match[1] or " "


_C99: Final = (c_ast.CompoundLiteral, c_ast.NamedInitializer, c_ast.StaticAssert, c_ast.Alignas, c_ast.Pragma)


def _c89(top: list[c_ast.Node], names: set[str], bare: str) -> Verdict:
    """Judge a text that pycparser accepts: is the text C89, and do type names follow our convention?"""
    if not top:
        return False
    if re.search(r"(^|;)\s*;", bare) or (
        re.search(r"\}\s*;", bare) and any(isinstance(node, c_ast.FuncDef) for node in top)
    ):
        return None  # perhaps an empty declaration
    verdict: Verdict = True
    todo = list(top)
    while todo:
        node = todo.pop()
        todo += [child for _, child in node.children()]
        match node:
            case c_ast.Compound(block_items=[*items]):
                kinds = [isinstance(item, c_ast.Decl | c_ast.Typedef) for item in items]
                if kinds != sorted(kinds, reverse=True):
                    return False
            case c_ast.For(init=c_ast.DeclList()):
                return False
            case c_ast.Struct(decls=[]) | c_ast.Union(decls=[]) | c_ast.InitList(exprs=[]):
                return False
            case c_ast.Struct(decls=[*members]) | c_ast.Union(decls=[*members]):
                if any(isinstance(member, c_ast.Decl) and not member.name and not member.bitsize for member in members):
                    verdict = None if names else False
            case c_ast.ArrayDecl(dim_quals=[_, *_]) | c_ast.ArrayDecl(dim=c_ast.ID(name="*")):
                return False
            case c_ast.Decl(name=str(name), type=kind) if name in names and not isinstance(
                kind, c_ast.Struct | c_ast.Union
            ):
                verdict = None  # a type name declared as something else
            case c_ast.IdentifierType(names=[_, _, *_] as words) if names & set(words):
                verdict = None  # pycparser accepts `word_t int`
            case c_ast.Typedef(name=name) if name not in names:
                verdict = None
        if isinstance(node, _C99):
            return False
    return verdict


def parses_as_c(text: str) -> bool:
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_c.language()))
    return not parser.parse(text.encode()).root_node.has_error


_LAX_C: Final = re.compile(r"\+[^;]*\w\s*=|\\q")  # assignment to a sum
# Macros, other names of types, and parameters declared after the parentheses
_UNREAD_C: Final = re.compile(
    r"\b(_*[A-Za-z]\w*_[A-Z]+|_*[A-Z][A-Z0-9_]*|__[a-z]\w*|_Generic|_Thread_local)\b|\)\s*int \w+;.*\{"
)


def c(text: str) -> Verdict:
    """Return the common verdict of tree-sitter, which knows no types, reads some macros, and is lax, and pycparser, for
    which names that end in _t are types; else None."""
    accepted = parses_as_c(text)
    unread = _LAX_C if accepted else _UNREAD_C
    return accepted if accepted is _pycparser(text) and not unread.search(text) else None


def _pycparser(text: str) -> bool:
    text = re.sub(r"(?m)^[ \t\v\f]*#(.*\\\n)*.*", "", _without_comments(text))
    prelude = "".join(f"typedef int {name};" for name in sorted(set(re.findall(r"\b\w+_t\b", text))))
    try:
        c_parser.CParser().parse(prelude + text)
    except c_parser.ParseError as error:
        return "Typedef" in str(error) or "Non-typedef" in str(error)
    return not re.search(r"\\x(?![0-9a-fA-F])|\\[^'\"?\\abefnrtvxuU0-7\n%]", text)


def json_(text: str) -> Verdict:
    try:
        json.loads(text, parse_constant=_no_constant)
    except ValueError:
        return False
    return True


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def arithmetic(text: str) -> Verdict:
    text = re.sub(r"[ \t\r\n]+", " ", text).strip(" ")
    if re.search(r"\*\*|//|, ?\)|\) ?\(|[^\x00-\x7f]", text):
        return False  # operators of Python only
    if any(keyword.iskeyword(word) for word in re.findall(r"[A-Za-z_]\w*", text)) or re.search(
        r"(?i)\d_|\b0\d|\b0[xob]|\dj|\d[a-df-z]", text
    ):
        return None  # numbers of Python only
    try:
        tree = ast.parse(text.replace("^", "**"), mode="eval")
    except (SyntaxError, ValueError):
        return False
    return all(_is_arithmetic(node) for node in ast.walk(tree))


def _is_arithmetic(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(), keywords=[]):
            return True
        case ast.Constant(value=int() | float()):
            return True
        case ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.Mod() | ast.Pow() | ast.UAdd() | ast.USub():
            return True
    return isinstance(node, ast.Expression | ast.BinOp | ast.UnaryOp | ast.Name | ast.Load)


def python(text: str) -> Verdict:
    if re.search(r"(?i)\b(f|rf|fr)[\"']|\\N|\b_\.|\d(and|else|for|if|in|is|not|or)\b|\\\s*\Z", text):
        return None  # f-strings, names of characters, 1if x else y, a backslash at the end
    return parses_as_python(text)


def parses_as_python(text: str) -> bool:
    with warnings.catch_warnings(action="ignore"):
        try:
            ast.parse(text)
        except (SyntaxError, ValueError):
            return False
    return True


def csv_(text: str) -> Verdict:
    # Python reads quotes inside plain fields, any line end and any control character; RFC 4180 does not.
    bare = re.sub(r'(?<![^,\n])"(?:[^"]|"")*"(?=\r\n|\n|,|\Z)', "", text)
    if '"' in bare or re.search(r"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f]", text):
        return False
    if bare.replace("\r\n", "").count("\r") or ("\r\n" in bare and "\n" in bare.replace("\r\n", "")):
        return False
    try:
        list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error:
        return False
    return True


def toml(text: str) -> Verdict:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        meaning = "Cannot overwrite|Cannot declare|Cannot mutate|Duplicate inline|Invalid date|Cannot redefine"
        return None if re.search(meaning, str(error)) else False
    return True


_LUA: Final = lupa.lua54.LuaRuntime()
_LUA_MEANING: Final = re.compile(
    "outside (a )?loop|no visible label|outside a vararg|const variable|already defined|to-be-closed|into the scope"
)


def lua(text: str) -> Verdict:
    if "[===" in text:
        return None
    try:
        _LUA.compile(text)
    except UnicodeDecodeError:
        return None  # Lua's error message quotes the text and is not UTF-8
    except lupa.lua54.LuaError as error:
        return None if _LUA_MEANING.search(str(error)) else False
    return True


def luaparser(text: str) -> Verdict:
    """Whether luaparser accepts `text`, as expected for every text that Lua accepts, except texts with hexadecimal
    floats. luaparser skips the checks of Lua's compiler."""
    try:
        luaparser_ast.parse(text)
    except Exception:  # noqa: BLE001 - luaparser raises errors of its own and of antlr
        return False
    return True


def graphql(text: str) -> Verdict:
    if re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f]|\\u\{", text):
        return False  # newer than the specification of October 2021
    try:
        tree = graphql_core.parse(text)
    except graphql_core.GraphQLSyntaxError as error:
        return None if "Unicode escape" in str(error) and r"\u" in text else False
    return _of_2021(tree)


def _of_2021(tree: graphql_core.DocumentNode) -> bool:
    class Newer(graphql_core.Visitor):
        found = False

        def enter(self, node: graphql_core.Node, *_: object) -> None:
            executable = isinstance(node, graphql_core.OperationDefinitionNode | graphql_core.FragmentDefinitionNode)
            if executable and getattr(node, "description", None):
                self.found = True
            if isinstance(node, graphql_core.VariableDefinitionNode) and getattr(node, "description", None):
                self.found = True
            if isinstance(node, graphql_core.DirectiveDefinitionNode) and getattr(node, "directives", None):
                self.found = True
            if isinstance(node, graphql_core.SelectionSetNode) and not node.selections:
                self.found = True

    newer = Newer()
    graphql_core.visit(tree, newer)
    return not newer.found


_GRAMMARS: Final = Path(__file__).resolve().parents[2] / "grammars"
_SQL: Final = (_GRAMMARS / "sql.y").read_text()
_SQL_WORDS: Final = set(re.findall(r'"([A-Z_]+)"', _SQL)) - set(
    re.findall(r'"([A-Z_]+)"', _SQL.partition("\nname\n")[2])
)
_SQLITE: Final = sqlite3.connect(":memory:", check_same_thread=False)
# Errors that sqlglot and SQLite both accept: operators on bits, ==, IN without parentheses, empty IN and OVER, empty
# names, IS anything, strings as names of tables, columns and aliases. Neither reads all changes and placeholders.
_BEFORE_A_STRING: Final = "like|then|when|else|case|and|or|not|select|escape|date|time|timestamp|interval"
_LAX_SQL: Final = re.compile(
    rf"""(?ix) == | << | >> | & | ~ | (?<!\|) \| (?!\|)
    | \b in \s+ \w | \b in \s* \( \s* \) | "" | \b over \s* ($ | [;,)] | from)
    | \b is \s+ (not \s+)? (?! not | null | true | false | unknown | distinct)
    | (from | join | ,) \s* ' | \b (?!{_BEFORE_A_STRING}) \w+ \s* '
    | \b (insert | into | drop | table | update | delete | default) \b
    | %s | %\( | \$ | \. \s* ' | \) \s* replace | \) \s* [a-z]+ \s* \) \s* [a-z]"""
)


def sql(text: str) -> Verdict:
    """Return the common verdict of sqlglot, which reads all dialects at once and is lax, and SQLite, which has gaps;
    else None."""
    if _LAX_SQL.search(text):
        return None
    answers = {sqlglot_(text), _sqlite(text)}
    if answers == {True} and any(
        sqlglot_(renamed) and _sqlite(renamed) for renamed in _with_a_name_for_each_word(text)
    ):
        return None  # a keyword was a name: the parsers reserve other words than our grammar
    return answers.pop() if len(answers) == 1 else None


def _with_a_name_for_each_word(text: str) -> Iterator[str]:
    for word in re.finditer(r"[A-Za-z_]+", text):
        if word[0].upper() in _SQL_WORDS:
            yield f"{text[: word.start()]}a_name{text[word.end() :]}"


def sqlglot_(text: str) -> Verdict:
    try:
        statements = sqlglot.parse(text)
    except sqlglot.errors.SqlglotError as error:
        return None if "values does not support CTE" in str(error) else False
    if len(statements) != 1 or not isinstance(statements[0], _QUERIES):
        return False
    return None if _chains_comparisons(statements[0]) or _joins_without_condition(statements[0], text) else True


def _chains_comparisons(query: sqlglot.exp.Expr) -> bool:
    operands = [side for node in query.find_all(*_PREDICATES) for side in (node.this, node.args.get("expression"))]
    return any(isinstance(operand, _PREDICATES) for operand in operands)


_QUERIES: Final = (sqlglot.exp.Query, sqlglot.exp.Values)
_PREDICATES: Final = (sqlglot.exp.Predicate, sqlglot.exp.Between, sqlglot.exp.In)


def _joins_without_condition(query: sqlglot.exp.Expr, text: str) -> bool:
    num_conditions = 0
    for join in query.find_all(sqlglot.exp.Join):
        has = join.args.get("on") or join.args.get("using") or join.args.get("method") or join.kind == "CROSS"
        num_conditions += bool(has)
    return num_conditions < len(re.findall(r"(?i)\bjoin\b", text))


def _sqlite(text: str) -> bool:
    try:
        _SQLITE.execute("EXPLAIN " + text)
    except sqlite3.Error as error:
        return not re.search("syntax error|unrecognized token|incomplete input|near", str(error))
    return True


ORACLES: Final[dict[str, Callable[[str], Verdict]]] = {
    "arithmetic": arithmetic,
    "c": c,
    "c89": c89,
    "csv": csv_,
    "graphql": graphql,
    "html": text_oracles.html,
    "javascript": node_oracles.javascript,
    "json": json_,
    "latex_math": node_oracles.latex_math,
    "lua": lua,
    "markdown_table": text_oracles.markdown_table,
    "python": python,
    "mermaid": node_oracles.mermaid,
    "regex": text_oracles.regex,
    "sql": sql,
    "toml": toml,
    "typescript": node_oracles.typescript,
    "yaml": text_oracles.yaml,
}
