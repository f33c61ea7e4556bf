import assert from "node:assert/strict";
import { test } from "node:test";
import { cachedShare, linesOf, summary, type Interval } from "./history.ts";

function interval(more: Partial<Interval>): Interval {
  return {
    time: 0, prompt_tokens: 0, cached_tokens: 0, output_tokens: 0, ended: 0, streams: 0, waiting: 0,
    first_token_s: { p50: null, p99: null }, inter_token_s: { p50: null, p99: null }, ...more,
  };
}

test("an hour in intervals, with nothing where nothing happened", () => {
  const busy = interval({ time: 9995, output_tokens: 50, streams: 2, waiting: 1, prompt_tokens: 10, cached_tokens: 4, first_token_s: { p50: 0.1, p99: 0.5 } });
  const lines = linesOf({ model: "it", interval_s: 5, intervals: [interval({ time: 1000, output_tokens: 9 }), busy] }, 10_003);
  assert.equal(lines.times.length, 720);
  assert.deepEqual(lines.times.slice(-2), [9995, 10_000]);
  assert.deepEqual(lines.tokensPerSecond.slice(-3), [0, 10, 0]);
  assert.deepEqual(lines.firstP99.slice(-3), [null, 0.5, null]);
  assert.deepEqual(lines.waiting.slice(-3), [0, 1, 0]);
  assert.deepEqual(lines.cached.slice(-2), [0.4, null]);
  assert.equal(summary(lines.tokensPerSecond).highest, 10, "an interval of another hour is left out");
});

test("summaries", () => {
  assert.deepEqual(summary([1, 3, null]), { last: 3, highest: 3 });
  assert.deepEqual(summary([null]), { last: null, highest: null });
  assert.equal(cachedShare(interval({})), null);
});
