import assert from "node:assert/strict";
import { test } from "node:test";
import { textOf } from "./run_model.ts";
import { readTrace, TraceError } from "./trace.ts";

const hex = (text: string): string => Buffer.from(text).toString("hex");
const line = (cmd: object, data: object, more: object = {}): string =>
  JSON.stringify({ timestamp: 1, suff: "", cmd, resp: { type: "ok", data }, ...more });
const fine = { error: "", result: null, storage: [], logs: "", micros: 5 };

const START = line({ op: "instantiate", req_id: "r1", module_arg: "the program" }, { ...fine, logs: "begun\n" });
const FORK = line(
  { op: "turn_process", post_ops: [], pre_ops: [{ id: 7, req_id: "r1" }], ops: [], freed: [] },
  { pre_seqs: { 7: { ...fine, result: { suspend: false, num_forks: 2, ff_tokens: [1] } } }, seqs: {} },
  { texts: { 1: hex("Hi") } },
);
const MASK = line(
  { op: "turn_process", ops: [{ id: 7, clone_id: null }, { id: 8, clone_id: 7 }] },
  { seqs: { 7: fine, 8: { ...fine, result: { ff_tokens: [1], backtrack: 1 } } } },
  { allowed: { 7: 42 } },
);
const DONE = line(
  { op: "turn_process", post_ops: [{ id: 7, tokens: [3], backtrack: 0 }, { id: 8, tokens: [1], backtrack: 1 }], freed: [8] },
  { post_seqs: { 7: { ...fine, result: { stop: true } }, 8: { ...fine, error: "broken" } } },
);

test("a recording becomes branches of steps", () => {
  const [traced, ...rest] = readTrace([START, FORK, MASK, DONE, ""].join("\n"));
  assert.equal(rest.length, 0);
  assert.equal(traced!.program, "the program");
  const [root, child] = traced!.run.branches;
  assert.deepEqual(root!.steps.map((step) => [step.kind, step.text]), [
    ["forced", "Hi"],
    ["fork", ""],
    ["sampled", "⟨3⟩"],
    ["end", "aici-stop"],
  ]);
  assert.equal(root!.steps[0]!.logs, "begun\n");
  assert.equal(root!.steps[2]!.allowed, 42);
  assert.deepEqual(child!.steps.map((step) => step.kind), ["back", "forced", "end"]);
  assert.equal(child!.error, "broken");
  assert.equal(textOf(child!), "Hi");
});

test("a sequence is asked again while it waits, and waits once", () => {
  const wait = line(
    { op: "turn_process", asked: [7], pre_ops: [] },
    { pre_seqs: { 7: { ...fine, result: { suspend: true, num_forks: 1, ff_tokens: [] } } } },
  );
  const [traced] = readTrace([START, FORK, wait, wait].join("\n"));
  assert.deepEqual(traced!.run.branches[0]!.steps.map((step) => step.kind), ["forced", "fork", "suspended"]);
});

test("a last line cut short is left out; anything else that is no recording is refused", () => {
  assert.equal(readTrace(`${START}\n${FORK}\n${MASK.slice(0, 50)}`).length, 1);
  for (const text of ["", "hello", `${START.slice(0, 9)}\n${FORK}`, "[]\n", '{"suff": "", "cmd": {}, "resp": null}'])
    assert.throws(() => readTrace(text), TraceError);
  const wrong = line({ op: "turn_process", post_ops: 3 }, {});
  assert.throws(() => readTrace(`${START}\n${wrong}\n`), TraceError);
});
