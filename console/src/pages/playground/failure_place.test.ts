import assert from "node:assert/strict";
import { test } from "node:test";
import { placeOfFailure } from "./failure_place.ts";

test("the innermost line of the script", () => {
  const python = 'While executing instantiate:\nError (setup): Traceback (most recent call last):\n  File "main.py", line 9, in <module>\n  File "main.py", line 2, in f\nZeroDivisionError: divide by zero';
  assert.deepEqual(placeOfFailure(python), { severity: "error", line: 2, column: 1, message: "ZeroDivisionError: divide by zero" });
  const script = "Error (setup): Exception: ReferenceError: nope is not defined\n    at f (main:3:7)\n    at <anonymous> (main:8:1)\n";
  assert.deepEqual(placeOfFailure(script), { severity: "error", line: 3, column: 7, message: "Error (setup): Exception: ReferenceError: nope is not defined" });
});

test("a message without a place", () => {
  assert.equal(placeOfFailure("Error (mid): the program allows no token"), null);
});
