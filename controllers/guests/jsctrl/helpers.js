// What scripts often need, in a few lines each; aici.d.ts describes it.
import { $, assert, fixed, gen } from "aici";

// One of the texts.
export function choose(...choices) {
  return gen({ choices: choices.flat() , maxTokens: 1000 });
}

// A value that the schema allows.
export async function json(jsonSchema, { maxTokens = 1000, ...more } = {}) {
  const text = await gen({ jsonSchema, maxTokens, ...more });
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`json: ${maxTokens} tokens (maxTokens) were not enough: ${text.slice(-100)}`);
  }
}

// A whole number from min to max.
export function integer(minimum, maximum) {
  return json({ type: "integer", minimum, maximum });
}

// Text up to the end of the line, which is there afterwards and is not returned.
export async function line({ maxTokens = 100 } = {}) {
  const text = await gen({ regex: /[^\n]*[^\s][^\n]*\n/, maxTokens });
  if (!text.endsWith("\n")) await fixed("\n");
  return text.trim();
}

// A numbered list of so many lines.
export async function list(length, { first = 1, ...more } = {}) {
  assert(Number.isInteger(length) && length > 0, "list: its length must be a whole number above 0");
  const items = [];
  for (let i = 0; i < length; i++) {
    await $`${first + i}. `;
    items.push(await line(more));
  }
  return items;
}
