import assert from "node:assert/strict";
import { test } from "node:test";
import { changes, layers, levelOf, pauseBefore, stageRows, type Engine, type Model, type ServerState } from "./state.ts";

const NAMES = { driver: "driver", whole: "engine" };

function engine(more: Partial<Engine> = {}): Engine {
  return { replica: 1, state: "up", restarts: 0, open: 0, memory_bytes: 100, max_num_seqs: 4, figures: null, ...more };
}

function model(more: Partial<Model> = {}): Model {
  return {
    model: "it", state: "loaded", max_len: 2048, num_layers: 30, admitted: 0, queue_capacity: 8, loads: 1,
    engines: [engine()], pipeline: null, ...more,
  };
}

function state(...engines: Engine[]): ServerState {
  return { time: 1, draining: false, models: [model({ engines })], num_requests: 0, requests: [] };
}

test("one process holds all layers", () => {
  const [row] = stageRows(model(), NAMES);
  assert.deepEqual([row?.name, row?.layers, row?.compute_s], ["engine", "0 to 29", null]);
  assert.equal(stageRows(model({ num_layers: null }), NAMES)[0]?.layers, null);
});

test("a pipeline has its stages, and the driver last", () => {
  const part = { weight_bytes: 10, page_bytes: 2, computed_s: 1 };
  const stage = { ...part, first: 0, last: 17, name: "far", address: "tcp://far:1", device: "cpu", memory_bytes: 1, waited_s: 0.5, rtt_s: 0.001 };
  const pipeline = {
    state: "ready", trouble: "", epoch: 1, interruptions: 0, num_pages: 5, num_steps: 100, hop_s: 0.0007,
    stages: [stage], driver: { ...part, first: 17, last: 17 },
  };
  const rows = stageRows(model({ pipeline }), NAMES);
  assert.deepEqual(rows.map(({ name, layers, memory_bytes, compute_s, wait_s }) => [name, layers, memory_bytes, compute_s, wait_s]), [
    ["far", "0 to 16", 20, 0.01, 0.005],
    ["driver", "none", 20, 0.01, null],
  ]);
  assert.equal(stageRows(model({ pipeline: { ...pipeline, num_steps: 0 } }), NAMES)[0]?.compute_s, null);
});

test("layers as people count", () => {
  assert.deepEqual([layers(0, 30), layers(4, 5), layers(7, 7)], ["0 to 29", "4", "none"]);
});

test("a change of a state is told once, and not at the first sight", () => {
  assert.deepEqual(changes(null, state(engine())), []);
  assert.deepEqual(changes(state(engine()), state(engine())), []);
  const [change] = changes(state(engine(), engine({ replica: 2 })), state(engine(), engine({ replica: 2, state: "restarting" })));
  assert.deepEqual([change?.model, change?.engine.replica, change?.engine.state], ["it", 2, "restarting"]);
});

test("states and pauses", () => {
  assert.deepEqual(["up", "draining", "restarting", "drained"].map(levelOf), ["good", "warn", "bad", "idle"]);
  assert.deepEqual([0, 1, 2, 9].map(pauseBefore), [500, 1000, 2000, 10_000]);
});
