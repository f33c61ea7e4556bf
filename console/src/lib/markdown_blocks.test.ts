import assert from "node:assert/strict";
import { test } from "node:test";
import { Blocks, MAX_BLOCK, MAX_LINE, split } from "./markdown_blocks.ts";

const TEXT = [
  "# Title\n\nA paragraph\nof two lines.\n\n- one\n- two\n\n  still two\n\n1. a\n\n2. b\n\n",
  "```js\nlet a = 1;\n\n\nlet b;\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> a quote\n\n<div>\nx\n</div>\n\n",
  "Setext\n---\n\n[a]: http://example.com\n\n    indented\n\nthe end",
].join("");

test("blocks of a text that grows are those of the whole text", () => {
  const blocks = new Blocks();
  for (let end = 1; end < TEXT.length; end++) blocks.update(TEXT.slice(0, end));
  assert.deepEqual(blocks.update(TEXT), split(TEXT));
  assert.ok(split(TEXT).length > 9);
});

test("blocks together are the text", () => {
  for (const text of [TEXT, "", "\n\n", "  a", "\ta\n\tb", "```\nopen", `${"x".repeat(3 * MAX_LINE)}\n# a\n`]) {
    assert.equal(split(text).map((block) => block.raw).join(""), text);
  }
});

test("a finished block is the same object after more text", () => {
  const blocks = new Blocks();
  const [first] = blocks.update("one\n\ntwo\n\nthree");
  assert.equal(blocks.update("one\n\ntwo\n\nthree\n\nfour")[0], first);
  assert.equal(blocks.update("other")[0]?.raw, "other");
});

test("a megabyte on one line is cut into plain pieces", () => {
  const line = "[](".repeat(350_000);
  const found = split(`before\n\n${line}\n\nafter`);
  assert.deepEqual([found.at(0)?.isPlain, found.at(1)?.isPlain, found.at(-1)?.isPlain], [false, true, false]);
  assert.ok(found.every((block) => block.raw.length <= MAX_LINE));
});

test("no piece ends inside of a character", () => {
  for (const block of split(`a${"🙂".repeat(MAX_LINE)}`)) assert.ok(block.raw.isWellFormed());
});

test("a block that is too long is plain", () => {
  const code = `\`\`\`\n${"a line\n".repeat(MAX_BLOCK / 4)}`;
  assert.ok(split(code).every((block) => block.isPlain));
});

test("long lists and paragraphs are cut between items and lines", () => {
  for (const line of ["- an item of a list\n", "a line of a paragraph\n"]) {
    const text = line.repeat(1000);
    const blocks = new Blocks();
    for (let end = 700; end < text.length; end += 700) blocks.update(text.slice(0, end));
    const found = blocks.update(text);
    assert.deepEqual(found, split(text));
    assert.ok(found.length > 3);
    assert.ok(found.every((block) => !block.isPlain && block.raw.startsWith(line)));
  }
});

test("lists in lists without end are plain", () => {
  for (const mark of ["> ", "- ", "1. "]) {
    const found = split(`a\n\n${mark.repeat(2000)}\n\nb`);
    assert.deepEqual([found.at(0)?.isPlain, found.at(1)?.isPlain, found.at(-1)?.isPlain], [false, true, false]);
  }
});

test("all kinds of line ends are one", () => {
  assert.deepEqual(new Blocks().update("a\r\n\r\nb\rc"), split("a\n\nb\nc"));
});
