import assert from "node:assert/strict";
import { test } from "node:test";
import { events } from "./sse.ts";

async function read(...chunks: string[]) {
  const bytes = new TextEncoder();
  const found = [];
  for await (const each of events(ReadableStream.from(chunks.map((chunk) => bytes.encode(chunk))))) found.push(each);
  return found;
}

test("events may be cut anywhere", async () => {
  const whole = 'event: token\ndata: {"a":\ndata: 1}\n\n: a comment\n\ndata: [DONE]\n\n';
  const expected = [
    { event: "token", data: '{"a":\n1}' },
    { event: "message", data: "[DONE]" },
  ];
  assert.deepEqual(await read(whole), expected);
  for (let at = 1; at < whole.length; at++) assert.deepEqual(await read(whole.slice(0, at), whole.slice(at)), expected);
});

test("an event without its empty line has not arrived", async () => {
  assert.deepEqual(await read("data: half\n"), []);
});
