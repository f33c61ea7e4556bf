import assert from "node:assert/strict";
import { test } from "node:test";
import { constraintFields, newSettings, requestOf, stopTexts, type Constraint } from "./settings.ts";

const constraint = (part: Partial<Constraint>): Constraint => ({ ...newSettings().constraint, ...part });

test("settings that are not set are not sent", () => {
  assert.deepEqual(requestOf(newSettings(), [{ role: "user", content: "a" }]), {
    model: "default",
    messages: [{ role: "user", content: "a" }],
  });
});

test("settings that are set are sent", () => {
  const settings = { ...newSettings(), model: "m", system: "s", temperature: 0, seed: 3, stop: "a\\nb\n\n\\\\n" };
  assert.deepEqual(requestOf(settings, []), {
    model: "m",
    messages: [{ role: "system", content: "s" }],
    temperature: 0,
    seed: 3,
    stop: ["a\nb", "\\n"],
  });
  assert.deepEqual(stopTexts(""), []);
});

test("each constraint has its field, and an empty one has none", () => {
  const cases: [Partial<Constraint>, Record<string, unknown>][] = [
    [{ kind: "none", regex: "a" }, {}],
    [{ kind: "regex", regex: "a" }, { guided_regex: "a" }],
    [{ kind: "grammar", grammar: "g" }, { guided_grammar: "g" }],
    [{ kind: "grammar", grammar: "g", grammarName: "csv" }, { guided_grammar: "g", grammar_syntax: "y" }],
    [{ kind: "json_schema", schema: "{}" }, { guided_json: {} }],
    [{ kind: "json_schema", schema: "{" }, { guided_json: "{" }],
    [{ kind: "choices", choices: "a\n\nb" }, { guided_choice: ["a", "b"] }],
    [{ kind: "controller", controller: "c" }, { controller: "c" }],
    [{ kind: "controller", controller: "c", argument: "x" }, { controller: "c", controller_arg: "x" }],
    [{ kind: "regex" }, {}],
    [{ kind: "controller", argument: "x" }, {}],
  ];
  for (const [part, expected] of cases) assert.deepEqual(constraintFields(constraint(part)), expected);
});
