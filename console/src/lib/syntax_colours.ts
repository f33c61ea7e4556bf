// Colours of code in an answer: loaded when an answer has code. What comes out are elements with classes, no styles.
import DOMPurify from "dompurify";
import colours from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import css from "highlight.js/lib/languages/css";
import go from "highlight.js/lib/languages/go";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import python from "highlight.js/lib/languages/python";
import rust from "highlight.js/lib/languages/rust";
import shell from "highlight.js/lib/languages/shell";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";

const MAX_CHARS = 20_000; // longer code stays plain: colours are no reason to wait

const LANGUAGES = { bash, c, cpp, css, go, java, javascript, json, python, rust, shell, sql, typescript, xml, yaml };
for (const [name, language] of Object.entries(LANGUAGES)) colours.registerLanguage(name, language);

/** Return the code as coloured elements with the same text; null for a language without colours. */
export function coloured(code: string, language: string): DocumentFragment | null {
  if (code.length > MAX_CHARS || !colours.getLanguage(language)) return null;
  const html = colours.highlight(code, { language, ignoreIllegals: true }).value;
  return DOMPurify.sanitize(html, { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"], RETURN_DOM_FRAGMENT: true });
}
