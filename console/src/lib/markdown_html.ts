// Markdown to HTML in which nothing of the text is markup of its own: HTML in the text is shown as text, pictures are links,
// and links lead to http and https only. `markdown.ts` sanitizes the result once more.
import { Marked, type Tokens } from "marked";

const HEADINGS_BELOW = 2; // the page has h1, and an answer stands below an h2

export function safeHref(href: string): string | null {
  try {
    const url = new URL(href);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

function anchor(href: string, title: string | null | undefined, content: string): string {
  const shown = title ? ` title="${escapeHtml(title)}"` : "";
  return `<a href="${escapeHtml(href)}"${shown} target="_blank" rel="noopener noreferrer nofollow">${content}</a>`;
}

const MAX_MARKS = 400;
let counted = { text: "", hasMany: false };

/** Whether a paragraph has so many marks of emphasis that pairing them takes long: the time is that of their square. */
function hasManyMarks(text: string): boolean {
  if (counted.text !== text) counted = { text, hasMany: text.replace(/[^*_]/g, "").length > MAX_MARKS };
  return counted.hasMany;
}

const marked = new Marked({
  gfm: true,
  breaks: true,
  async: false,
  tokenizer: {
    emStrong(_source, masked) {
      return hasManyMarks(masked) ? undefined : false;
    },
  },
  renderer: {
    heading({ tokens, depth }: Tokens.Heading) {
      const level = Math.min(depth + HEADINGS_BELOW, 6);
      return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>\n`;
    },
    html({ text, block }: Tokens.HTML | Tokens.Tag) {
      const shown = escapeHtml(text.trimEnd()).replaceAll("\n", "<br>");
      return block ? `<p>${shown}</p>\n` : shown;
    },
    link({ href, title, tokens, raw }: Tokens.Link) {
      const safe = safeHref(href);
      return safe === null ? escapeHtml(raw) : anchor(safe, title, this.parser.parseInline(tokens));
    },
    image({ href, title, text, raw }: Tokens.Image) {
      const safe = safeHref(href);
      return safe === null ? escapeHtml(raw) : anchor(safe, title, escapeHtml(text || safe));
    },
    def({ raw }: Tokens.Def) {
      return `<p>${escapeHtml(raw)}</p>\n`;
    },
    checkbox({ checked }: Tokens.Checkbox) {
      return checked ? "☑ " : "☐ ";
    },
    code({ text, lang }: Tokens.Code) {
      const language = lang?.match(/^[\w+#.-]{1,20}/)?.[0] ?? "";
      return `<pre data-language="${escapeHtml(language)}"><code>${escapeHtml(text)}\n</code></pre>\n`;
    },
  },
});

export function markdownHtml(text: string): string {
  return marked.parse(text) as string;
}
