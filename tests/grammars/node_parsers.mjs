// Parsers from npm, asked over a pipe: a line is {"language", "text"} in JSON, the answer is a line of JSON, null or the error.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const from = createRequire(`${process.argv[2]}/package.json`);
const acorn = () => {
  const { parse } = from("acorn");
  return (text) => parse(text, { ecmaVersion: 2024, sourceType: "module", allowReturnOutsideFunction: true });
};
const typescript = () => {
  const ts = from("typescript");
  return (text) => {
    const file = ts.createSourceFile("a.ts", text, { languageVersion: ts.ScriptTarget.Latest }, false, ts.ScriptKind.TS);
    const [first] = file.parseDiagnostics;
    if (first) throw new Error(ts.flattenDiagnosticMessageText(first.messageText, "\n"));
  };
};
const katex = () => {
  const { renderToString } = from("katex");
  return (text) => renderToString(text, { displayMode: true, strict: "ignore", trust: true });
};
const mermaid = async () => {
  const { JSDOM } = from("jsdom");
  globalThis.window = new JSDOM("").window;
  globalThis.Option = globalThis.window.Option;
  globalThis.document = globalThis.window.document;
  const { default: parser } = await import(from.resolve("mermaid"));
  return (text) => parser.parse(text);
};
const makers = { javascript: acorn, typescript, latex_math: katex, mermaid };
const parsers = {};
for await (const line of createInterface({ input: process.stdin })) {
  const { language, text } = JSON.parse(line);
  parsers[language] ??= await makers[language]();
  let error = null;
  try {
    await parsers[language](text);
  } catch (thrown) {
    error = String(thrown?.message ?? thrown);
  }
  process.stdout.write(`${JSON.stringify(error)}\n`);
}
