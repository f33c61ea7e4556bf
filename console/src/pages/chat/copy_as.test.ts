import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { copyAs, py, shell, type CopyInput } from "./copy_as.ts";
import { newSettings } from "./settings.ts";

const TEXTS = ["it's", "a b", "$HOME `x` \\ \"", "", "-x", "a\nb", "plain", "日本 🙂 \u2028 \u007f"];

function input(part: Partial<CopyInput> = {}): CopyInput {
  const settings = { ...newSettings(), min_p: 0.1, stop: "end" };
  const messages: CopyInput["messages"] = [{ role: "user", content: "it's" }];
  return { origin: "http://127.0.0.1:1", hasKey: false, settings, messages, ...part };
}

test("a shell reads the text that was quoted", () => {
  for (const text of TEXTS) assert.equal(execFileSync("sh", ["-c", `printf %s ${shell(text)}`], { encoding: "utf8" }), text);
});

test("Python's form of JSON values", () => {
  assert.equal(py({ a: [true, null, 1.5, "x"], b: {}, c: [] }), '{\n    "a": [\n        True,\n        None,\n        1.5,\n        "x",\n    ],\n    "b": {},\n    "c": [],\n}');
  assert.equal(py("\u007f\n"), '"\\x7f\\n"');
});

test("a key is named and never written", () => {
  for (const form of ["curl", "python", "aici"] as const) {
    assert.match(copyAs(form, input({ hasKey: true })), /AICI_API_KEY/);
    assert.doesNotMatch(copyAs(form, input()), /AICI_API_KEY/);
  }
});

test("fields of this server are in extra_body, others are the client's", () => {
  const text = copyAs("python", input());
  assert.match(text, /extra_body=\{\n        "min_p": 0.1,\n    \}/);
  assert.match(text, /    stop=\[\n        "end",\n    \],/);
});

test("what aici run has no place for is named", () => {
  const settings = { ...newSettings(), system: "s", min_p: 0.1 };
  const messages: CopyInput["messages"] = [
    { role: "user", content: "a" },
    { role: "assistant", content: "b" },
    { role: "user", content: "c" },
  ];
  const text = copyAs("aici", input({ settings, messages }));
  assert.match(text, /^# aici run has no place for: the system prompt, 2 earlier messages, min_p\n/);
  assert.match(text, / -- c\n$/);
});
