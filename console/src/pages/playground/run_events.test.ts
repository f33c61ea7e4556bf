import assert from "node:assert/strict";
import { test } from "node:test";
import { takeEvent, type RunEvent } from "./run_events.ts";
import { afterMask, endOf, newRun, ownTextOf, textOf, treeOf, type Explanation } from "./run_model.ts";

const hex = (text: string): string => Buffer.from(text).toString("hex");
const token = (id: number, text: string, origin: "sampled" | "forced" = "sampled") => ({ id, bytes: hex(text), origin });
const fork = (index: number, more: object) => ({ index, text: "", error: "", logs: "", storage: [], tokens: [], ...more });
const event = (...forks: object[]) => ({ object: "run", forks }) as unknown as RunEvent;

function runOf(...events: RunEvent[]) {
  const run = newRun();
  for (const each of events) takeEvent(run, each);
  return run;
}

test("logs and writes stand at the step that follows them", () => {
  const write = { WriteVar: { name: "a", value: hex("é"), op: "Set" } };
  const run = runOf(
    event(fork(0, { tokens: [token(1, "one", "forced")] })),
    event(fork(0, { logs: "said\n", storage: [write] })),
    event(fork(0, { tokens: [token(2, " two")] })),
    event(fork(0, { logs: "last\n", finish_reason: "aici-stop" })),
    event(fork(0, { finish_reason: "aici-stop" })),
  );
  const steps = run.branches[0]!.steps;
  assert.deepEqual(
    steps.map((step) => [step.kind, step.text, step.logs, step.writes]),
    [
      ["forced", "one", "", []],
      ["sampled", " two", "said\n", [{ name: "a", value: "é", isAppended: false }]],
      ["end", "aici-stop", "last\n", []],
    ],
  );
});

test("tokens taken back are marked, and the text is without them", () => {
  const run = runOf(event(fork(0, { tokens: [token(1, "a"), token(2, "b"), { backtrack: 1 }, { backtrack: 1 }, token(3, "c", "forced")] })));
  const branch = run.branches[0]!;
  assert.deepEqual(branch.steps.map((step) => [step.kind, step.isTakenBack]), [
    ["sampled", true],
    ["sampled", true],
    ["back", false],
    ["back", false],
    ["forced", false],
  ]);
  assert.equal(textOf(branch), "c");
});

test("a fork inherits what its parent had, even if that came with the same event", () => {
  const shared = [token(1, "A", "forced"), token(2, "B", "forced")];
  const run = runOf(
    event(fork(0, { tokens: [shared[0]] })),
    event(
      fork(0, { tokens: [shared[1], token(3, "x")] }),
      fork(1, { parent: 0, inherited_tokens: 2, tokens: [...shared, token(3, "x")] }),
      fork(2, { parent: 1, inherited_tokens: 2, tokens: [...shared, { backtrack: 1 }] }),
    ),
  );
  assert.deepEqual(run.branches[0]!.steps.map((step) => step.kind), ["forced", "forced", "fork", "sampled"]);
  assert.deepEqual(run.branches.map(textOf), ["ABx", "ABx", "A"]);
  assert.deepEqual(treeOf(run.branches).map(({ branch, depth }) => [branch.index, depth]), [
    [0, 0],
    [1, 1],
    [2, 2],
  ]);
});

test("after the mask, allowed tokens share what the mask left", () => {
  const explanation: Explanation = {
    num_allowed: 2,
    probability: 0.2,
    masked_probability: 0.4,
    likeliest: [
      { id: 1, text: "no", probability: 0.5, allowed: false },
      { id: 2, text: "other", probability: 0.3, allowed: true },
      { id: 3, text: "drawn", probability: 0.2, allowed: true },
    ],
    forward_s: 0,
    guest_s: null,
  };
  assert.deepEqual(afterMask(explanation), [0, 0.6, 0.4]);
});

test("the end of a branch's text is found from its last steps", () => {
  const run = runOf(
    event(fork(0, { tokens: [token(1, "one"), token(2, " two")] })),
    event(fork(0), fork(1, { parent: 0, inherited_tokens: 2, tokens: [token(1, "one"), token(2, " two"), token(3, " three")] })),
  );
  const child = run.branches[1]!;
  assert.deepEqual([endOf(child, 6), endOf(child, 7), endOf(child, 99)], [" three", " two three", "one two three"]);
  assert.equal(ownTextOf(child), " three");
  takeEvent(run, event(fork(1, { tokens: [{ backtrack: 2 }, token(4, " four")] })));
  assert.deepEqual([endOf(child, 6), ownTextOf(child)], [textOf(child), " four"]);
  assert.equal(textOf(child), "one four");
});
