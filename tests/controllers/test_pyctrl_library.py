"""The library of Python scripts: a line gives the same in the guest as in CPython."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from aici_controllers.case_file import Case, Step, read_cases
from aici_controllers.case_runner import CaseRunner
from tests.support.guest_cases import running_cases

_FILE = read_cases(Path(__file__).resolve().parents[2] / "controllers" / "guests" / "pyctrl" / "cases.toml")
_IMPORTS = (
    "import re, itertools as it, operator as op, functools as ft, collections as co, contextlib as cl, types, string, "
    "keyword, copy, bisect, enum, json"
)
_DEFINITIONS = """
said = []

@cl.contextmanager
def noted(name):
    said.append("in " + name)
    try:
        yield name
    finally:
        said.append("out " + name)

def with_errors():
    said.clear()
    with cl.suppress(KeyError), noted("a") as a, cl.ExitStack() as stack:
        stack.enter_context(noted("b"))
        stack.callback(said.append, "called")
        {}["missing"]
    return said

def raised(function):
    try:
        function()
    except Exception as error:
        return type(error).__name__
    return "nothing"

class Color(enum.Enum):
    RED = 1
    GREEN = 2
    ALSO_GREEN = 2

    def shout(self):
        return self.name + "!"

class Level(enum.IntEnum):
    LOW = enum.auto()
    HIGH = enum.auto()

class Word(enum.StrEnum):
    ONE = enum.auto()
    TWO = "zwei"

class Thing:
    def __init__(self, parts):
        self.parts = parts

def deep():
    first = Thing([1, [2, 3]])
    other, shallow = copy.deepcopy(first), copy.copy(first)
    first.parts[1].append(4)
    return [other.parts, shallow.parts]

def counted():
    words = co.Counter("abracadabra")
    words.subtract("ab")
    groups = co.defaultdict(list)
    for word in ["one", "two", "three"]:
        groups[len(word)].append(word)
    return [sorted(words.items()), words["z"], sorted(groups.items()), co.Counter("aab").most_common(1)]
"""
_LINES = r"""
re.findall(r"\d+", "a1b22c333")
re.findall(r"(\w)(\d)?", "a1b")
re.findall(r"a*", "baac")
re.findall(r"^a", "aaa")
re.findall("x", "")
[(m.group(), m.span()) for m in re.finditer(r"b+", "abbcb")]
[m.groups("-") for m in re.finditer(r"(a)|(b)", "abc")]
re.split(r",\s*", "a, b,c,  d")
re.split(r"(,)", "a,b,c", maxsplit=1)
re.split(r"x", "")
re.fullmatch(r"a|ab", "ab").group()
re.fullmatch(r"a", "ab") is None
re.sub(r"(\w)(\d)", r"\2\g<1>", "a1 b2")
re.sub(r"\d", lambda m: str(2 * int(m.group())), "1-2-3", count=2)
re.subn(r"-", "+", "1-2-3")
re.sub(r"x*", "-", "abxd")
re.escape("a.b*c [d] e_f-g")
re.match(r"(a)(b)?", "a").groups()
re.match(r"(a)(b)?", "ab").group(1, 2)
re.search(r"b(c)", "abc").span(1)
re.compile("a").pattern
[list(it.islice(it.count(3, 2), 4)), list(it.islice("abcdef", 1, 5, 2)), list(it.islice(it.cycle("ab"), 5))]
[list(it.chain("ab", [1])), list(it.chain.from_iterable(["ab", "c"])), list(it.repeat(1, 3))]
[list(it.takewhile(lambda x: x < 3, [1, 2, 3, 1])), list(it.dropwhile(lambda x: x < 3, [1, 2, 3, 1]))]
[list(it.accumulate([1, 2, 3])), list(it.accumulate([1, 2, 3], op.mul, initial=2)), list(it.accumulate([]))]
[list(it.product("ab", repeat=2)), list(it.permutations([1, 2, 3], 2)), list(it.combinations("abcd", 3))]
list(it.combinations_with_replacement("abc", 2))
[len(list(it.permutations(range(6)))), list(it.permutations("abc"))[:3], list(it.permutations("a", 2))]
[list(it.pairwise("abcd")), list(it.zip_longest("abc", "x", fillvalue="-")), list(it.zip_longest())]
[[key, list(group)] for key, group in it.groupby([1, 1, 2, 3, 3, 1])]
[[key, list(group)] for key, group in it.groupby(["a", "b", "cc"], key=len)]
[list(it.starmap(pow, [(2, 3)])), list(it.compress("abc", [1, 0, 1])), list(it.filterfalse(None, [0, 1]))]
[list(items) for items in it.tee("ab")]
[op.itemgetter(1)("abc"), op.itemgetter(0, 2)("abc"), op.methodcaller("upper")("a"), op.countOf([1, 2, 1], 1)]
[op.contains([1], 1), op.floordiv(7, 2), op.indexOf("abc", "c"), op.not_(0), op.invert(1), op.index(3)]
[ft.reduce(op.add, [1, 2, 3]), ft.partial(op.sub, 5)(2), sorted([3, 1, 2], key=ft.cmp_to_key(lambda a, b: b - a))]
with_errors()
raised(lambda: cl.suppress(KeyError).__enter__() or int("x"))
[cl.nullcontext(3).__enter__(), types.SimpleNamespace(a=1).a, types.SimpleNamespace(a=1) == types.SimpleNamespace(a=1)]
isinstance(with_errors, types.FunctionType)
[string.ascii_letters, string.digits, string.punctuation, string.capwords("one  two")]
[keyword.iskeyword("while"), keyword.iskeyword("aici")]
deep()
counted()
[bisect.bisect([1, 2, 2, 3], 2), bisect.bisect_left([1, 2, 2, 3], 2)]
[str(Color.RED), repr(Color.GREEN), Color.RED.value, Color(2).name, Color["RED"].name, len(Color)]
[[color.name for color in Color], Color.ALSO_GREEN is Color.GREEN, Color.RED == 1, Color.RED in Color]
[raised(lambda: Color(3)), raised(lambda: Color["X"]), raised(lambda: Color.X), Color.RED.shout()]
[Color.RED == Color.RED, Color.RED != Color.GREEN]
[Level.LOW + 1, Level.HIGH > Level.LOW, [level.name for level in Level], Level(2).name, Level.HIGH == 2]
[Word.ONE == "one", Word.TWO.upper(), Word("zwei").name, Word.TWO + "!"]
{Color.RED: 1}[Color.RED]
""".strip().splitlines()


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[object], list[object]]:
    """The values of all lines, in the guest and in CPython."""
    lines = "".join(f"    lambda: {line},\n" for line in _LINES)
    script = f"""{_IMPORTS}
{_DEFINITIONS}
def value(function):
    try:
        return function()
    except Exception as error:
        return [type(error).__name__, str(error)]
for function in [
{lines}]:
    print("VALUE" + json.dumps(value(function)))
"""
    with running_cases("pyctrl", _FILE, tmp_path_factory.mktemp("bytes")) as runner:
        ours = _said(_log(runner, script + "import aici\nawait aici.StopToken()\n"))
    theirs = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    return ours, _said(theirs)


def _log(runner: CaseRunner, script: str) -> str:
    outcome = runner.run(Case(name="", argument=script, prompt="", error="", steps=(Step(stop=True),)))
    assert outcome.ok, f"{outcome.message}\n{outcome.log}"
    return outcome.log


def _said(text: str) -> list[object]:
    return [json.loads(line.removeprefix("VALUE")) for line in text.splitlines() if line.startswith("VALUE")]


@pytest.mark.parametrize("number", range(len(_LINES)), ids=lambda number: _LINES[number][:40])
def test_a_line_gives_the_same_as_in_cpython(answers: tuple[list[object], list[object]], number: int) -> None:
    ast.parse(_LINES[number])
    ours, theirs = answers
    assert ours[number] == theirs[number]
