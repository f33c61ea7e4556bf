"""Scripts in Python as a user runs a script: `aici run FILE.py`, the default model, the real runtime."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from aici_controllers.grammar_check import accepts
from tests.support.warm import warm_aici

pytestmark = pytest.mark.e2e

SEED = r"""
import aici
await aici.FixedTokens("Ultimate answer is to the life, universe and everything is ")
await aici.gen_text(regex=r"\d\d")
"""

SUITE = r"""
import re

import pyaici.server as aici


async def prompt_backtrack():
    prompt = await aici.GetPrompt()
    assert aici.detokenize(prompt) == b"Once upon a time", prompt

    class Back(aici.NextToken):
        def mid_process(self):
            return aici.MidProcessResult.splice(1, aici.tokenize(" day\n"))

    await Back()
    assert aici.detokenize(aici.get_tokens()) == b"Once upon a day\n"


async def hello():
    await aici.FixedTokens("Hello")
    await aici.gen_tokens(regex=" [A-Z][a-z]+", store_var="hello", max_tokens=5)


async def noop():
    before = aici.get_tokens()
    await aici.Noop()
    assert aici.get_tokens() == before


async def sample():
    await aici.FixedTokens("\nThe word 'hello' in French is")
    aici.set_var("french", await aici.gen_text(regex=' "[^"\n]+"', max_tokens=8))
    await aici.FixedTokens("\nFive")
    await aici.gen_tokens(options=[" pounds", " euros"], store_var="coins")
    word = aici.RegexConstraint(" [a-z]+")
    await aici.ConstrainedToken(lambda: word)


async def backtrack():
    await aici.FixedTokens("\n3+")
    label = aici.Label()
    await aici.FixedTokens("2")
    await aici.gen_tokens(regex=r"=\d\d?\.", store_var="x")
    await aici.FixedTokens("4", following=label)
    await aici.gen_tokens(regex=r"=\d\d?\.", store_var="y")
    assert re.match(r"^4=\d\d?\.$", label.text_since()), label.text_since()


async def fork_and_wait():
    me = await aici.fork(3)
    if me > 0:
        await aici.FixedTokens(f"\n{me}: ")
        aici.set_var(f"of{me}", await aici.gen_text(regex="[a-z]+", max_tokens=3))
        return
    one, two = await aici.wait_vars("of1", "of2")
    await aici.FixedTokens(f"\n{one.decode()} and {two.decode()}")


async def main():
    await prompt_backtrack()
    await hello()
    await noop()
    await sample()
    await backtrack()
    await fork_and_wait()


aici.test(main())
"""

# What the samples cfg, tla, idents and drugs of the original show.
SAMPLES = r'''
import pyaici.server as aici

CFG = """
%start function
%%
function: "int" NAME "(" ")" "{" statements "}" ;
statements: %empty | statements statement ;
statement: "return" sum ";" | "int" NAME "=" sum ";" ;
sum: term | sum "+" term ;
term: NAME | "/[0-9]+/" | "(" sum ")" ;
NAME: "/[a-z_]+/" ;
SKIP: "/ +/" ;
"""
TLA = """
%start formula
%right "=>"
%left "\\/"
%left "/\\"
%nonassoc "=" "#"
%%
formula: formula "=>" formula | formula "\\/" formula | formula "/\\" formula
       | "[]" formula | "(" formula ")" | name "=" name | name "#" name | name "'" "=" name ;
name: "/[a-z]+/" ;
SKIP: "/ +/" ;
"""
LETTER = "The doctor gave her aspirin and, after a week, paracetamol. Vitamin D was not needed."


async def cfg():
    await aici.FixedTokens("\n")
    await aici.gen_tokens(yacc=CFG, max_tokens=40, store_var="cfg")


async def tla():
    await aici.FixedTokens("\nSafety == ")
    await aici.gen_tokens(yacc=TLA, max_tokens=25, store_var="tla")


async def idents():
    lexer = aici.DynamicLexer()
    for name in ("count", "total", "next_item"):
        lexer.add(name)
    constraint = lexer.constraint()
    await aici.FixedTokens("\nThe names in the program: ")
    label = aici.Label()
    for _ in range(12):
        await aici.ConstrainedToken(lambda: constraint)
    aici.set_var("idents", label.text_since())


async def drugs():
    await aici.FixedTokens(f'\n{LETTER}\nDrugs, quoted: "')
    for number in range(2):
        quote = await aici.gen_text(substring=LETTER, substring_end='"', max_tokens=6, store_var=f"quote{number}")
        assert quote.strip('"') in LETTER, quote
        await aici.FixedTokens(', "')
    name = await aici.gen_text(choices=["aspirin", "paracetamol", "none"], store_var="drug")
    assert name in ("aspirin", "paracetamol", "none")


async def main():
    await cfg()
    await tla()
    await idents()
    await drugs()


aici.test(main())
'''


def run(folder: Path, script: str, *args: str) -> tuple[int, dict[str, Any]]:
    path = folder / "script.py"
    path.write_text(script)
    done = warm_aici("run", "--json", "--log", str(path), *args)
    return done.returncode, json.loads(done.stdout) if done.stdout else {"stderr": done.stderr}


def test_a_constrained_number(tmp_path: Path) -> None:
    code, out = run(tmp_path, SEED)
    assert code == 0, out
    assert re.fullmatch(r"Ultimate answer is to the life, universe and everything is \d\d", out["text"])
    assert out["finish_reason"] == "aici-stop"


def test_generation_backtracking_and_forks(tmp_path: Path) -> None:
    code, out = run(tmp_path, SUITE, "--prompt", "Once upon a time", "--seed", "1")
    assert code == 0, out
    assert out["logs"].endswith("\nTEST OK\n")
    assert out["finish_reason"] == "aici-stop"
    assert re.search(r"\n3\+4=\d\d?\.\n[a-z]+ and [a-z]+$", out["text"])
    assert set(out["variables"]) >= {"hello", "french", "coins", "x", "y", "of1", "of2"}
    assert out["variables"]["coins"] in (" pounds", " euros")


def test_an_error_says_where(tmp_path: Path) -> None:
    code, out = run(tmp_path, "import aici\nawait aici.gen_tokens(max_tokens=2)\nnone_of_it()\n")
    assert code == 1
    assert out["finish_reason"] == "fail"
    assert "File \"main.py\", line 3, in <module>\nNameError: name 'none_of_it' isn't defined" in out["error"]
    assert out["text"]


def test_samples_as_the_original_has(tmp_path: Path) -> None:
    code, out = run(tmp_path, SAMPLES, "--prompt", "Four samples", "--seed", "1")
    assert code == 0, out
    assert out["logs"].endswith("\nTEST OK\n")
    variables = out["variables"]
    for name in ("CFG", "TLA"):
        grammar = SAMPLES.partition(f'{name} = """')[2].partition('"""')[0].replace("\\\\", "\\")
        verdict = accepts(grammar, variables[name.lower()], syntax="y")
        assert verdict.at == len(variables[name.lower()].encode()), name  # may end at max_tokens
    words = re.findall(r"[A-Za-z_][A-Za-z0-9_]*", variables["idents"])
    assert set(words[:-1]) <= {"count", "total", "next_item"}
