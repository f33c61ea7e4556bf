// The place in a script that a failed run names.
import type { Problem } from "./editor.ts";

const JAVASCRIPT = /\bat (?:[^\n]*\()?main:(\d+):(\d+)/;
const PYTHON = /File "main\.py", line (\d+)/g;
const MAX_CHARS = 300;

/** Return the error as a problem with its place, or null if the message names no line of the script. */
export function placeOfFailure(message: string): Problem | null {
  const lines = message.trim().split("\n");
  const inJavaScript = JAVASCRIPT.exec(message);
  if (inJavaScript) {
    const said = lines.find((line) => !/^\s+at /.test(line) && /Exception|Error:/.test(line)) ?? lines[0]!;
    return problem(Number(inJavaScript[1]), Number(inJavaScript[2]), said);
  }
  const inPython = [...message.matchAll(PYTHON)].at(-1);
  return inPython ? problem(Number(inPython[1]), 1, lines.at(-1)!) : null;
}

function problem(line: number, column: number, said: string): Problem {
  return { severity: "error", line, column, message: said.trim().slice(0, MAX_CHARS) };
}
