// A growing markdown text as blocks. Finished blocks stay as they are, so that each new token costs the last blocks only.
import { Lexer, type Token } from "marked";

/** `raw`: the block's markdown. `isPlain`: too long to be read as markdown; the page shows the text as it stands. */
export interface Block {
  raw: string;
  isPlain: boolean;
}

export const MAX_LINE = 8192;
export const MAX_BLOCK = 65_536;
/** A longer list is cut between its items, a longer paragraph between its lines. */
const LONG = 4096;
/** A line that opens so many lists and quotes is no markdown that anybody meant, and takes markdown's readers long. */
const NESTED = /^(?:[ \t]*(?:[>*+-]|\d{1,9}[.)])){16}/;
/** New text may still join the last blocks: "1. a", an empty line and "2" become one list with the next period. */
const OPEN_BLOCKS = 2;

export class Blocks {
  #text = "";
  #finished: Block[] = [];
  #end = 0;

  /** Return the blocks of `text`. Cheap if `text` is the last call's text with more at its end. */
  update(text: string): Block[] {
    const clean = text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text;
    if (!clean.startsWith(this.#text)) {
      this.#finished = [];
      this.#end = 0;
    }
    this.#text = clean;
    const open = split(clean.slice(this.#end));
    while (open.length > OPEN_BLOCKS) {
      const block = open.shift();
      if (!block) break;
      this.#finished.push(block);
      this.#end += block.raw.length;
    }
    return [...this.#finished, ...open];
  }
}

/** Return the blocks of a text; together they are the text. White space belongs to the block before. */
export function split(text: string): Block[] {
  const found: Block[] = [];
  let from = 0;
  for (let at = 0; at < text.length; ) {
    const newline = text.indexOf("\n", at);
    const end = newline < 0 ? text.length : newline + 1;
    if (end - at > MAX_LINE || NESTED.test(text.slice(at, Math.min(end, at + 400)))) {
      found.push(...markdown(text.slice(from, at)), ...pieces(text.slice(at, end)));
      from = end;
    }
    at = end;
  }
  found.push(...markdown(text.slice(from)));
  return found;
}

function markdown(text: string): Block[] {
  if (text === "") return [];
  const found: Block[] = [];
  let length = 0;
  for (const token of new Lexer({ gfm: true, breaks: true }).blockTokens(text, [])) {
    length += token.raw.length;
    const last = found.at(-1);
    if (token.type === "space" && last) last.raw += token.raw;
    else found.push(...cut(token).map((raw) => ({ raw, isPlain: false })));
  }
  const whole = length === text.length ? found : [{ raw: text, isPlain: false }];
  return whole.flatMap((block) => (block.raw.length > MAX_BLOCK ? pieces(block.raw) : [block]));
}

function cut(token: Token): string[] {
  const { raw } = token;
  if (raw.length <= LONG) return [raw];
  if (token.type === "list") return grouped(raw, (token.items as Token[]).map((item) => item.raw.length));
  if (token.type === "paragraph") return grouped(raw, raw.split("\n").map((line) => line.length + 1));
  return [raw];
}

/** Return `text` in parts of at least LONG characters, each of whole pieces. `lengths`: of the pieces. */
function grouped(text: string, lengths: number[]): string[] {
  const found: string[] = [];
  let from = 0;
  let at = 0;
  for (const length of lengths) {
    at += length;
    if (at - from >= LONG && at < text.length) {
      found.push(text.slice(from, at));
      from = at;
    }
  }
  found.push(text.slice(from));
  return found;
}

/** Return a text in plain blocks, for a text that is shown as it stands. */
export function pieces(text: string): Block[] {
  const found: Block[] = [];
  for (let at = 0; at < text.length; ) {
    let end = Math.min(at + MAX_LINE, text.length);
    // A surrogate pair is one character.
    if (end < text.length && /[\uD800-\uDBFF]/.test(text.charAt(end - 1))) end -= 1;
    found.push({ raw: text.slice(at, end), isPlain: true });
    at = end;
  }
  return found;
}
