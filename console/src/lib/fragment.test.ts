import assert from "node:assert/strict";
import { test } from "node:test";
import { FragmentError, fromFragment, toFragment } from "./fragment.ts";

test("a value comes back from its fragment", async () => {
  const value = { source: "await $`é ${1}`;\n".repeat(500), settings: { seed: 1 }, none: null };
  const text = await toFragment(value);
  assert.match(text, /^[\w-]+$/);
  assert.ok(text.length < 500, "compressed");
  assert.deepEqual(await fromFragment(text), value);
});

test("a fragment of another page, and one cut short, are refused", async () => {
  const whole = await toFragment({ source: "a longer text that does not fit into a few letters" });
  for (const text of ["", "chat", "a b", "####", whole.slice(0, -9), `${whole.slice(0, 8)}!`])
    await assert.rejects(fromFragment(text), FragmentError);
});

test("a small fragment that unpacks to a large text is refused, and so is a large value", async () => {
  const zeros = new Response(new Blob(["0".repeat(3_000_000)]).stream().pipeThrough(new CompressionStream("deflate-raw")));
  const bomb = Buffer.from(await zeros.arrayBuffer()).toString("base64url");
  assert.ok(bomb.length < 64 * 1024);
  await assert.rejects(fromFragment(bomb), FragmentError);
  await assert.rejects(toFragment("0".repeat(2_000_000)), FragmentError);
});
