import assert from "node:assert/strict";
import { test } from "node:test";
import { age, bytes, count, milliseconds, NONE, percent, seconds } from "./format.ts";

test("sizes", () => {
  const cases: [number | null, string][] = [
    [0, "0 B"], [1023, "1023 B"], [1536, "1.5 KiB"], [20 << 20, "20 MiB"], [1.25 * 2 ** 30, "1.3 GiB"], [null, NONE],
  ];
  for (const [value, text] of cases) assert.equal(bytes(value), text);
});

test("times", () => {
  const cases: [number | null, string][] = [
    [0.00071, "0.7 ms"], [0.0123, "12.3 ms"], [0.25, "250 ms"], [1.04, "1.0 s"], [59.9, "59.9 s"], [60, "1 min 0 s"],
    [75.4, "1 min 15 s"], [3700, "1 h 1 min"], [null, NONE],
  ];
  for (const [value, text] of cases) assert.equal(seconds(value), text);
});

test("ages", () => {
  assert.deepEqual([-1, 2.9, 61].map(age), ["0 s", "2 s", "1 min 1 s"]);
});

test("counts", () => {
  assert.equal(count(1234567), "1,234,567");
  assert.equal(count(null), NONE);
});

test("probabilities and short times", () => {
  assert.deepEqual([0, 0.00001, 0.1234, 1].map(percent), ["0.00 %", "<0.01 %", "12.34 %", "100.00 %"]);
  assert.deepEqual([0.000001, 0.00123, 0.0123].map(milliseconds), ["<0.01 ms", "1.23 ms", "12.3 ms"]);
});
