// The controllers of a server as `GET /v1/controllers` lists them, and what the page computes of them.
import type { Account } from "../../lib/account.svelte.ts";

export interface Controller {
  module_id: string;
  wasm_size: number;
  compiled_size: number | null;
  created: number | null;
  created_by: string | null;
  tags: string[];
  shared: boolean;
}

/** `created_by` of the controllers that came with the server. */
export const SHIPPED_BY = "aici";

export function isShipped(controller: Controller): boolean {
  return controller.created_by === SHIPPED_BY;
}

/** The name that people know a controller by: of a shipped one its own name, else the first tag, else the short id. */
export function nameOf(controller: Controller): string {
  return controller.tags[0] ?? shortId(controller);
}

export function shortId(controller: Controller): string {
  return controller.module_id.slice(0, 12);
}

/** The tags that can be removed: the name of a shipped controller cannot. */
export function freeTags(controller: Controller): string[] {
  return isShipped(controller) ? controller.tags.slice(1) : controller.tags;
}

export function mayRemove(controller: Controller, account: Account | null): boolean {
  if (!account?.upload || isShipped(controller)) return false;
  return account.admin || controller.created_by === account.name;
}

const MAGIC = [0x00, 0x61, 0x73, 0x6d];

/** Whether a file begins as a WebAssembly module. The server says the same, after the upload of a large file. */
export function isWasm(begin: Uint8Array): boolean {
  return MAGIC.every((byte, place) => begin[place] === byte);
}

/** What a key's own tags begin with; an administrator's tags begin as they like. */
export function prefixOf(account: Account | null): string {
  return !account || account.admin ? "" : `${account.name}.`;
}

/** A tag for a file: its name without the ending and without what tags cannot have; empty if nothing is left. */
export function tagFor(fileName: string, account: Account | null): string {
  const name = fileName
    .replace(/\.wasm$/i, "")
    .replace(/[^A-Za-z0-9_.-]+/g, "-")
    .replace(/^[^A-Za-z]+|-+$/g, "");
  return name && (prefixOf(account) + name).slice(0, 50);
}

const FENCE = /^\s*(```|~~~)/;
const OWN_LINE = /^\s*([#|>]|[-*+] |\d+[.)] |$)/;

/** The lines of a paragraph as one line. A README is wrapped by hand, and the page shows each line break of Markdown. */
export function unwrapped(markdown: string): string {
  const lines: string[] = [];
  let isCode = false;
  let isOpen = false; // whether the last line is one of a paragraph
  for (const line of markdown.split(/\r?\n/)) {
    const isFence = FENCE.test(line);
    if (isFence) isCode = !isCode;
    const isText = !isFence && !isCode && !/^\s*([#|>]|$)/.test(line);
    if (isOpen && isText && !OWN_LINE.test(line)) lines[lines.length - 1] += ` ${line.trim()}`;
    else lines.push(line);
    isOpen = isText;
  }
  return lines.join("\n");
}
