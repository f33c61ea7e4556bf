import assert from "node:assert/strict";
import { test } from "node:test";
import { pieces, StreamError, type Piece } from "./answer.ts";

function body(...data: unknown[]): ReadableStream<Uint8Array> {
  const text = data.map((each) => `data: ${typeof each === "string" ? each : JSON.stringify(each)}\n\n`).join("");
  return ReadableStream.from([new TextEncoder().encode(text)]);
}

const chunk = (delta: object, completion_tokens: number, finish_reason: string | null = null) => ({
  choices: [{ delta, finish_reason }],
  usage: { prompt_tokens: 9, completion_tokens, prompt_tokens_details: { cached_tokens: 4 } },
});

async function all(stream: ReadableStream<Uint8Array>): Promise<Piece[]> {
  let time = 1000;
  return Array.fromAsync(pieces(stream, 900, () => (time += 50)));
}

test("texts, thoughts, figures and the end", async () => {
  const found = await all(
    body(
      chunk({ role: "assistant", content: "" }, 0),
      chunk({ reasoning_content: "hm" }, 1),
      chunk({ content: "a" }, 2),
      { ...chunk({ content: "b" }, 3, "length"), warnings: ["w"] },
      "[DONE]",
    ),
  );
  assert.deepEqual(found.map((piece) => piece.text), ["", "", "a", "b"]);
  assert.equal(found[1]?.thought, "hm");
  assert.equal(found[0]?.figures, null);
  assert.equal(found[2]?.figures?.tokensPerSecond, null);
  // Times: the first token at 1100, the third at 1200.
  assert.deepEqual(found[3]?.figures, {
    promptTokens: 9,
    cachedTokens: 4,
    tokens: 3,
    firstMs: 200,
    totalMs: 300,
    tokensPerSecond: 20,
  });
  assert.deepEqual([found[3]?.ending, found[3]?.warnings], ["length", ["w"]]);
});

test("a failure within the stream, and a stream that is cut, are errors", async () => {
  const failed = all(body(chunk({ content: "a" }, 1), { error: { message: "no memory", hint: "wait" } }));
  await assert.rejects(failed, new StreamError("no memory — wait"));
  await assert.rejects(all(body(chunk({ content: "a" }, 1))), StreamError);
});
