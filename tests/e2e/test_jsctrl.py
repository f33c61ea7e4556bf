"""Scripts in JavaScript as a user runs a script: `aici run FILE.js`, the default model, the real runtime."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.warm import warm_aici

pytestmark = pytest.mark.e2e

SEED = r"await $`Ultimate answer is to the life, universe and everything is `; await gen({ regex: /\d\d/ })"

SUITE = r"""
import { checkVars, fixed, getPrompt, Label, test } from "aici";

async function hello() {
  await $`Hello`;
  await gen({ regex: / [A-Z][a-z]+/, storeVar: "hello", maxTokens: 5 });
}

async function sample() {
  await $`\nThe word 'hello' in French is`;
  setVar("french", await gen({ regex: / "[^"\n]+"/, maxTokens: 8 }));
  await $`\nFive`;
  await gen({ options: [" pounds", " euros"], storeVar: "coins" });
}

async function noop() {
  const before = getTokens().length;
  const nothing = new NextToken();
  nothing.midProcess = () => MidProcessResult.noop();
  assert((await nothing.run()).length === 0);
  await pause();
  assert(getTokens().length === before);
}

async function backtrack() {
  await $`\n3+`;
  const label = new Label();
  await $`2`;
  await gen({ regex: /=\d\d?\./, storeVar: "x" });
  await label.fixedAfter("4");
  await gen({ regex: /=\d\d?\./, storeVar: "y" });
  assert(/^4=\d\d?\.$/.test(label.textSince()), label.textSince());
}

async function promptBacktrack() {
  const prompt = await getPrompt();
  assert(detokenize(prompt).decode() === "Once upon a time", prompt);
  const label = new Label();
  label.ptr = prompt.length - 1;
  await label.fixedAfter(" day\n");
}

async function forkAndWait() {
  const me = await fork(3);
  if (me > 0) {
    await $`\n${me}: `;
    setVar(`of${me}`, await gen({ regex: /[a-z]+/, maxTokens: 3 }));
    return;
  }
  const [one, two] = await waitVars("of1", "of2");
  await $`\n${one} and ${two}`;
}

test(async () => {
  await promptBacktrack();
  await hello();
  await noop();
  await sample();
  await backtrack();
  await forkAndWait();
});
"""


def run(folder: Path, script: str, *args: str) -> tuple[int, dict[str, Any]]:
    path = folder / "script.js"
    path.write_text(script)
    done = warm_aici("run", "--json", "--log", str(path), *args)
    return done.returncode, json.loads(done.stdout) if done.stdout else {"stderr": done.stderr}


def test_a_constrained_number(tmp_path: Path) -> None:
    code, out = run(tmp_path, SEED)
    assert code == 0, out
    assert re.fullmatch(r"Ultimate answer is to the life, universe and everything is \d\d", out["text"])
    assert out["finish_reason"] == "aici-stop"


def test_generation_forks_and_variables(tmp_path: Path) -> None:
    code, out = run(tmp_path, SUITE, "--prompt", "Once upon a time", "--seed", "1")
    assert code == 0, out
    assert out["logs"].endswith("\nTEST OK\n")
    assert out["finish_reason"] == "aici-stop"
    assert re.search(r"\n3\+4=\d\d?\.\n[a-z]+ and [a-z]+$", out["text"])
    assert set(out["variables"]) >= {"hello", "french", "coins", "x", "y"}
    assert out["variables"]["coins"] in (" pounds", " euros")


def test_an_error_says_where(tmp_path: Path) -> None:
    code, out = run(tmp_path, "await gen({ maxTokens: 2 });\nnone.of.it();")
    assert code == 1
    assert out["finish_reason"] == "fail"
    assert "ReferenceError: none is not defined\n    at <anonymous> (main:2:1)" in out["error"]
    assert out["text"]
