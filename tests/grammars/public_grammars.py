"""Read the grammars that public packages ship, and compare verdicts on texts with independent engines.

    python -m tests.grammars.public_grammars FOLDER

FOLDER holds packages as `pip download` and `npm pack` leave them; nothing of them is kept here. Texts are drawn from
each grammar, and spoiled; some packages list texts that pass and fail. Lark is compared with llguidance, and with
lark's own Earley parser where llguidance does not read the grammar; GBNF with XGrammar. `--seed` and `--texts` vary
the texts. A difference is known if a second judge agrees with us (KNOWN); every other difference is printed.
"""

import argparse
import ast
import re
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

import wasmtime

from aici_controllers.catalog import guest_path
from aici_controllers.notations.lark_imports import Load, no_files
from aici_controllers.notations.reading import read_notation, read_tree
from aici_controllers.notations.tree import GrammarSyntax, NotationError
from tests.support.native_tool import NoAnswerError
from tests.support.notation_oracles import LarkEarley, Llguidance, XGrammar, guest_verdicts
from tests.support.tool_guest import ToolGuest
from tests.support.tree_texts import Texts

Verdict = Callable[[str], bool]


class Found(NamedTuple):
    name: str
    syntax: GrammarSyntax
    text: str
    passes: tuple[str, ...] = ()
    fails: tuple[str, ...] = ()
    load: Load = no_files


def packed_files(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file of the packages that may hold a grammar."""
    endings = (".lark", ".gbnf", ".ebnf", ".py", ".cpp", ".rs", ".md", ".ts")
    for path in sorted(folder.iterdir()):
        package = re.split(r"-\d", path.name)[0]
        if path.suffix in (".whl", ".zip"):
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    if name.endswith(endings):
                        yield f"{package}/{name}", archive.read(name).decode(errors="replace")
        elif path.suffix in (".gz", ".tgz"):
            with tarfile.open(path) as archive:
                for member in archive:
                    if member.isfile() and member.name.endswith(endings) and (file := archive.extractfile(member)):
                        yield f"{package}/{member.name.partition('/')[2]}", file.read().decode(errors="replace")


def grammars(folder: Path) -> Iterator[Found]:
    """Yield the grammars of the packages, each text once."""
    known: set[str] = set()
    files = dict(packed_files(folder))
    for name, text in files.items():
        for found in _grammars_of(name, text):
            if (key := re.sub(r"\s+", " ", found.text)) not in known:
                known.add(key)
                yield found._replace(load=_beside(name, files))


def _beside(name: str, files: dict[str, str]) -> Load:
    """Return how a Lark file of a package imports from the files beside it."""
    folder = name.rpartition("/")[0]
    return lambda path: files.get(f"{folder}/{path.lstrip('.').replace('.', '/')}.lark")


def _grammars_of(name: str, text: str) -> Iterator[Found]:
    if name.endswith(".lark"):
        yield Found(name, "lark", text if re.search(r"(?m)^[?!]*start\b", text) else _with_start(text))
    elif name.endswith((".gbnf", ".ebnf")):
        yield Found(name, "gbnf", text)
    elif name.endswith(".cpp") and "test" in name:
        yield from _from_cpp(name, text)
    elif name.endswith(".py") and "::=" in text:
        for number, literal in enumerate(_literals(text)):
            if re.search(r"(?m)^\s*root\s*::=", literal):
                yield Found(f"{name}#{number}", "gbnf", literal)
    elif name.endswith((".md", ".ts", ".rs")) and "root ::=" in text:
        for number, block in enumerate(re.findall(r"```\w*\n(.*?)```|`(root ::=[^`$]*)`", text, re.DOTALL)):
            if re.search(r"(?m)^root\s*::=", block[0] or block[1]):
                yield Found(f"{name}#{number}", "gbnf", block[0] or block[1])


def _with_start(text: str) -> str:
    """A file whose first rule or terminal is the start: programs name it, or other files import it."""
    first = re.search(r"(?m)^[?!]*(\w+)(?:\.\d+)?\s*:", text)
    return f"{text}\nstart: {first[1]}\n" if first else text


def _literals(text: str) -> Iterator[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


_RAW = r'R"""\((.*?)\)"""|((?:"(?:\\.|[^"\\])*"\s*)+)'


def _from_cpp(name: str, text: str) -> Iterator[Found]:
    """Calls of test_grammar(description, grammar, {passing}, {failing}), and grammars in raw strings."""
    plain = re.sub(r"(?m)^\s*//.*$", "", text)
    call = re.compile(
        rf'test_grammar\(\s*("(?:\\.|[^"\\])*"),\s*(?:{_RAW}),\s*\{{(.*?)\}},\s*\{{(.*?)\}}\s*\);', re.DOTALL
    )
    for found in call.finditer(plain):
        grammar = found[2] if found[2] is not None else _cpp_string(found[3])
        syntax: GrammarSyntax = "lark" if "llguidance" in name else "gbnf"
        passes, fails = (tuple(_cpp_strings(part)) for part in (found[4], found[5]))
        yield Found(f"{name}#{_cpp_string(found[1])}", syntax, grammar, passes, fails)
    for number, raw in enumerate(re.findall(r'R"""\((.*?)\)"""', plain, re.DOTALL)):
        if "root ::=" in raw:
            yield Found(f"{name}#raw{number}", "gbnf", raw)


def _cpp_strings(text: str) -> Iterator[str]:
    item = re.compile(r'\s*(?:R"""\((.*?)\)"""|((?:"(?:\\.|[^"\\])*"\s*)+))\s*,?', re.DOTALL)
    at = 0
    text = re.sub(r"(?m)^\s*//.*$", "", text)
    while found := item.match(text, at):
        yield found[1] if found[1] is not None else _cpp_string(found[2])
        at = found.end()


def _cpp_string(text: str) -> str:
    parts = re.findall(r'"((?:\\.|[^"\\])*)"', text)
    return "".join(str(ast.literal_eval(f'"{part}"')) for part in parts)


class Oracle(NamedTuple):
    name: str
    verdict: Verdict
    close: Callable[[], None] = lambda: None


def _oracle(found: Found) -> Oracle | None:
    if found.syntax == "gbnf":
        xgrammar = XGrammar(found.text)
        if not xgrammar.problem:
            return Oracle("xgrammar", xgrammar.accepts, xgrammar.close)
        xgrammar.close()
        return None
    theirs = Llguidance(found.text)
    if not theirs.problem:
        return Oracle("llguidance", lambda text: theirs.verdict(text)[0])
    earley = LarkEarley(found.text)
    return None if earley.problem else Oracle("lark", earley.accepts)


KNOWN: Final[dict[tuple[str, bool], tuple[Literal["dynamic", "basic"], str]]] = {
    ("llguidance", True): (
        "dynamic",
        "llguidance takes no ignored text before the first lexeme and behind the last, reads `*?` inside a regex as "
        "`*`, and skips where an ignored and another terminal match the same text; lark agrees with us",
    ),
    ("lark", False): (
        "basic",
        "lark's dynamic lexer reads lexemes shorter than the longest; with its basic lexer, lark agrees with us",
    ),
}
"""By oracle and our verdict: the lexer of lark that must agree with us, and why the oracle does not."""
KNOWN_OF: Final = {
    "beancount_parser/beancount_parser/grammar/escaped_string.lark": (
        "its start is /(.|\\r?\\n)*?/, of which the shortest text is empty; llguidance reads `*`, and lark refuses"
    )
}
"""Differences of one grammar, where lark is no judge."""


def _is_known(found: Found, oracle: str, text: str, ours: bool) -> bool:
    lexer, _ = KNOWN.get((oracle, ours), (None, ""))
    if lexer is None or found.name in KNOWN_OF:
        return found.name in KNOWN_OF
    judge = LarkEarley(found.text, lexer)
    return not judge.problem and judge.accepts(text) == ours


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--texts", type=int, default=12)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    tool = ToolGuest(guest_path("grammar"))
    counts: Counter[str] = Counter()
    for found in grammars(args.folder):
        if args.only in found.name:
            _compare(tool, found, args.seed, args.texts, counts)
    for key, count in sorted(counts.items()):
        print(f"{count:6} {key}")
    for (oracle, _), (_, why) in KNOWN.items():
        print(f"known differences to {oracle}: {why}")
    for name, why in KNOWN_OF.items():
        print(f"known differences of {name}: {why}")
    return 1 if any(key.endswith("wrong") for key in counts) else 0


def _compare(tool: ToolGuest, found: Found, seed: int, num_texts: int, counts: Counter[str]) -> None:
    reading = read_notation(found.text, syntax=found.syntax, load=found.load)
    if reading.error:
        place, message = reading.error
        counts[f"{found.syntax}: declined"] += 1
        print(f"{found.name}:{place.line}:{place.column}: declined: {message}", file=sys.stderr)
        return
    try:
        texts = Texts(read_tree(found.text, found.syntax, found.load), seed)
        drawn = [texts.sentence() for _ in range(num_texts)]
    except (NotationError, RecursionError):
        drawn = []
    drawn = [text for text in dict.fromkeys(drawn) if len(text) < 400]
    drawn += [texts.mistaken(text) for text in drawn for _ in range(2)]
    listed = [*found.passes, *found.fails]
    try:
        answers = guest_verdicts(tool, reading.guest.text, [*listed, *drawn])
    except AssertionError as error:
        counts[f"{found.syntax}: refused by the guest"] += 1
        print(f"{found.name}: the guest refuses: {str(error)[:300]}", file=sys.stderr)
        return
    except wasmtime.WasmtimeError as error:  # a guest at its limits: counted, told, and the rest goes on
        counts[f"{found.syntax}: failed"] += 1
        print(f"{found.name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
        return
    counts[f"{found.syntax}: read"] += 1
    ours = [accepted for accepted, _ in answers]
    for text, accepted, expected in zip(
        listed, ours, [True] * len(found.passes) + [False] * len(found.fails), strict=False
    ):
        verdict = "right" if accepted == expected else "wrong"
        counts[f"{found.syntax}: listed texts {verdict}"] += 1
        if verdict == "wrong":
            print(f"{found.name}: {text!r} is {accepted} here, listed as {expected}", file=sys.stderr)
    oracle = _oracle(found)
    if not oracle:
        counts[f"{found.syntax}: without oracle"] += 1
        return
    try:
        _judge(found, oracle, list(zip(drawn, ours[len(listed) :], strict=True)), counts)
    except NoAnswerError as error:
        counts[f"{found.syntax}: no answer of {oracle.name}"] += 1
        print(f"{found.name}: {oracle.name}: {error}", file=sys.stderr)
    finally:
        oracle.close()


def _judge(found: Found, oracle: Oracle, texts: list[tuple[str, bool]], counts: Counter[str]) -> None:
    counts[f"{found.syntax}: compared with {oracle.name}"] += 1
    for text, accepted in texts:
        theirs = oracle.verdict(text)
        kind = "equal" if theirs == accepted else "ours alone" if accepted else "theirs alone"
        if theirs != accepted and _is_known(found, oracle.name, text, accepted):
            kind += ", known"
        elif theirs != accepted:
            print(f"{found.name}: {text!r} is {accepted} here, {theirs} for {oracle.name}", file=sys.stderr)
        counts[f"{found.syntax}: texts {kind} ({oracle.name}{', accepted' if accepted and theirs else ''})"] += 1


if __name__ == "__main__":
    sys.exit(main())
