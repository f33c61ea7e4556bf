import assert from "node:assert/strict";
import { test } from "node:test";
import { freeTags, isWasm, mayRemove, nameOf, tagFor, unwrapped, type Controller } from "./controllers.ts";

function controller(more: Partial<Controller> = {}): Controller {
  return {
    module_id: "0123456789abcdef", wasm_size: 1, compiled_size: null, created: null, created_by: "ann", tags: [],
    shared: false, ...more,
  };
}

const ann = { name: "ann", admin: false, upload: true, own_controllers: true };

test("names and tags", () => {
  assert.equal(nameOf(controller()), "0123456789ab");
  assert.equal(nameOf(controller({ tags: ["mine", "other"] })), "mine");
  assert.deepEqual(freeTags(controller({ tags: ["mine"] })), ["mine"]);
  assert.deepEqual(freeTags(controller({ tags: ["regex", "mine"], created_by: "aici" })), ["mine"]);
});

test("who may remove a module", () => {
  assert.ok(mayRemove(controller(), ann));
  assert.ok(mayRemove(controller(), { ...ann, name: "root", admin: true }));
  assert.ok(!mayRemove(controller(), { ...ann, name: "bob" }));
  assert.ok(!mayRemove(controller(), { ...ann, upload: false }));
  assert.ok(!mayRemove(controller({ created_by: "aici" }), { ...ann, admin: true }));
  assert.ok(!mayRemove(controller(), null));
});

test("a module is known by its first bytes", () => {
  assert.ok(isWasm(new Uint8Array([0, 0x61, 0x73, 0x6d, 1])));
  assert.ok(!isWasm(new Uint8Array([0, 0x61])));
});

test("a tag for a file", () => {
  const cases = [["my guest.wasm", "my-guest"], ["2.wasm", ""], ["_a.WASM", "a"], ["ünï.wasm", "n"]];
  for (const [file, tag] of cases) assert.equal(tagFor(file as string, { ...ann, admin: true }), tag);
  assert.equal(tagFor("guest.wasm", ann), "ann.guest");
});

test("paragraphs lose their line breaks, and nothing else does", () => {
  const cases: [string, string][] = [
    ["# A\nb\nc\n\nd", "# A\nb c\n\nd"],
    ["- a\n  b\n- c", "- a b\n- c"],
    ["| a |\n|---|\n| b |\n\nc", "| a |\n|---|\n| b |\n\nc"],
    ["a\n```\nb\nc\n```\nd", "a\n```\nb\nc\n```\nd"],
    ["1. a\n2. b\n> c", "1. a\n2. b\n> c"],
  ];
  for (const [text, expected] of cases) assert.equal(unwrapped(text), expected);
});
