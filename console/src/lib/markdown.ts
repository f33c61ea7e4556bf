// The sanitized elements of a block of markdown.
import DOMPurify from "dompurify";
import { texts } from "../texts.ts";
import { escapeHtml, markdownHtml } from "./markdown_html.ts";
import type { Block } from "./markdown_blocks.ts";
import { visible } from "./visible.ts";

const TAGS = [
  ..."a blockquote br code del em h3 h4 h5 h6 hr li ol p pre strong".split(" "),
  ..."table tbody td th thead tr ul".split(" "),
];
const ATTRIBUTES = ["align", "data-language", "href", "rel", "start", "target", "title"];

/** Return the elements of a block. Code has its language and a button with the attribute `data-copy` above it. */
export function blockElements(block: Block): DocumentFragment {
  const text = visible(block.raw);
  const html = block.isPlain ? plain(text) : htmlOf(text);
  const fragment = DOMPurify.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ATTRIBUTES,
    ADD_URI_SAFE_ATTR: ATTRIBUTES.filter((name) => name !== "href"),
    ALLOW_DATA_ATTR: false,
    ALLOWED_URI_REGEXP: /^https?:/i,
    RETURN_DOM_FRAGMENT: true,
  });
  for (const pre of fragment.querySelectorAll("pre")) framed(pre);
  for (const table of fragment.querySelectorAll("table")) wrapped(table);
  return fragment;
}

function plain(text: string): string {
  return `<p>${escapeHtml(text)}</p>`;
}

/** The reader fails on what is nested too deeply. */
function htmlOf(text: string): string {
  try {
    return markdownHtml(text);
  } catch {
    return plain(text);
  }
}

/** What is wider than the page scrolls by itself, and the keyboard reaches it. */
function wrapped(table: HTMLTableElement): void {
  const frame = document.createElement("div");
  frame.className = "wide";
  frame.tabIndex = 0;
  table.replaceWith(frame);
  frame.append(table);
}

function framed(pre: HTMLPreElement): void {
  const frame = document.createElement("div");
  frame.className = "code";
  const bar = document.createElement("div");
  bar.className = "bar";
  const language = document.createElement("span");
  language.textContent = pre.dataset.language ?? "";
  const copy = document.createElement("button");
  copy.type = "button";
  copy.className = "quiet";
  copy.dataset.copy = "";
  copy.textContent = texts.chat.copy;
  bar.append(language, copy);
  pre.tabIndex = 0;
  pre.replaceWith(frame);
  frame.append(bar, pre);
}
