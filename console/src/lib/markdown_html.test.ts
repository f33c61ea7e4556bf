import assert from "node:assert/strict";
import { test } from "node:test";
import { markdownHtml, safeHref } from "./markdown_html.ts";
import { visible, visibleLabel } from "./visible.ts";

const HOSTILE = [
  ["<script>alert(1)</script>", "&#60;script&#62;alert(1)&#60;/script&#62;"],
  ["a <img src=x onerror=alert(1)> b", "&#60;img src=x onerror=alert(1)&#62;"],
  ["[x](javascript:alert(1))", "[x](javascript:alert(1))"],
  ["[x](JaVaScRiPt:alert(1))", "[x](JaVaScRiPt:alert(1))"],
  ["[x](data:text/html,1)", "[x](data:text/html,1)"],
  ["<javascript:alert(1)>", "javascript:alert(1)"],
  ["![x](http://example.com/a.png)", '<a href="http://example.com/a.png"'],
  ["![x](data:image/svg+xml,1)", "![x](data:image/svg+xml,1)"],
  ["<!-- hidden -->", "&#60;!-- hidden --&#62;"],
  ["[name]: http://example.com 'title'", "[name]: http://example.com"],
  ['[x](http://example.com/"onmouseover="alert(1))', "http://example.com/%22onmouseover=%22alert(1"],
] as const;

test("hostile texts are texts", () => {
  for (const [text, expected] of HOSTILE) {
    const html = markdownHtml(text);
    assert.ok(html.includes(expected), `${text} became ${html}`);
    assert.doesNotMatch(html, /<(script|img|style|iframe)|href="(?!https?:)| on\w+="/i);
  }
});

test("a link says that it is not trusted", () => {
  assert.match(markdownHtml("[x](https://example.com)"), /target="_blank" rel="noopener noreferrer nofollow"/);
  assert.equal(safeHref("/v1/models"), null);
});

test("code, tasks, tables and headings", () => {
  assert.match(markdownHtml("```python\nif a < b: pass\n```"), /data-language="python"><code>if a &#60; b: pass\n<\/code>/);
  assert.match(markdownHtml("- [x] done\n- [ ] open"), /☑ .*done[^]*☐ .*open/);
  assert.match(markdownHtml("| a |\n|--:|\n| 1 |"), /<td align="right">1<\/td>/);
  assert.match(markdownHtml("# a"), /<h3>a<\/h3>/);
});

test("control characters and overrides of direction are seen", () => {
  assert.equal(visible("\u001b[31m\u0000\u007f\n\t\u009b\u202eabc"), "␛[31m␀␡\n\t[U+009B][U+202E]abc");
  assert.equal(visible("עברית \u200f"), "עברית \u200f");
  assert.equal(visibleLabel("a\n\t\r\u001b\u200f\u{e0001}é"), "a⏎⇥␍␛[U+200F][U+E0001]é");
});

test("the time for hostile texts of a line's length is bounded", () => {
  const long = (text: string) => text.repeat(Math.floor(8000 / text.length));
  for (const text of ["[", "*", "_", "`", "<", "![", "[](", "**a", "~", "|", "\\", "&", "*a_", "a@", "www.", "<a "]) {
    const before = process.cpuUsage();
    markdownHtml(long(text));
    const used = process.cpuUsage(before).user / 1000;
    assert.ok(used < 5000, `${text}: ${used} ms`);
  }
});
