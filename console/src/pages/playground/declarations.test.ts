import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { keysOfSchema, namesOfPython, namesOfTypeScript } from "./declarations.ts";

const ours = (path: string): string => readFileSync(new URL(`../../../../controllers/aici_controllers/${path}`, import.meta.url), "utf8");
const labels = (names: { label: string }[]): Set<string> => new Set(names.map((each) => each.label));

test("every export of aici.d.ts is a name", () => {
  const text = ours("script_starters/javascript/aici.d.ts");
  const names = namesOfTypeScript(text);
  for (const [, name] of text.matchAll(/^ {2}export (?:function|class|const) ([\w$]+)/gm)) assert.ok(labels(names).has(name!), name);
  const regex = names.find((each) => each.owner === "GenOptions" && each.label === "regex");
  assert.match(regex?.info ?? "", /^The whole text matches\. Syntax: the controller regex\. Of JavaScript's flags/);
  assert.equal(names.find((each) => each.label === "textSince")?.owner, "Label");
});

test("every name of aici.pyi, and the keywords of its functions", () => {
  const text = ours("script_starters/python/aici.pyi");
  const names = namesOfPython(text);
  for (const [, name] of text.matchAll(/^(?:async def|def|class) (\w+)/gm)) assert.ok(labels(names).has(name!), name);
  assert.ok(names.some((each) => each.owner === "gen_text" && each.label === "max_tokens="));
  assert.match(names.find((each) => each.label === "gen_tokens")?.info ?? "", /^Let the model generate tokens\./);
  assert.equal(names.find((each) => each.label === "text_since")?.owner, "Label");
});

test("the keys of declarative steps", () => {
  const keys = labels(keysOfSchema(JSON.parse(ours("declctrl.schema.json"))));
  for (const key of ["steps", "Fixed", "Gen", "Fork", "rx", "max_tokens"]) assert.ok(keys.has(key), key);
});
