// The request of a conversation as commands and code, for a terminal or a script. A key is named, never written.
import { requestOf, stopTexts, lines, type Message, type Settings } from "./settings.ts";

export const FORMS = ["curl", "python", "aici"] as const;
export type Form = (typeof FORMS)[number];

/** `origin`: of the server. `hasKey`: whether the server asks for a key. */
export interface CopyInput {
  origin: string;
  hasKey: boolean;
  settings: Settings;
  messages: Message[];
}

export function copyAs(form: Form, input: CopyInput): string {
  return { curl, python, aici }[form](input);
}

function curl({ origin, hasKey, settings, messages }: CopyInput): string {
  const body = JSON.stringify(requestOf(settings, messages), null, 2);
  const parts = [
    `curl -N ${origin}/v1/chat/completions`,
    "-H 'Content-Type: application/json'",
    ...(hasKey ? ['-H "Authorization: Bearer $AICI_API_KEY"'] : []),
    `-d ${shell(body)}`,
  ];
  return `${parts.join(" \\\n  ")}\n`;
}

/** Fields that the method of OpenAI's client has itself. */
const OF_CLIENT = new Set(["model", "messages", "temperature", "top_p", "seed", "max_tokens", "stop"]);

function python({ origin, hasKey, settings, messages }: CopyInput): string {
  const fields = Object.entries(requestOf(settings, messages));
  const own = Object.fromEntries(fields.filter(([name]) => !OF_CLIENT.has(name)));
  const args = fields.filter(([name]) => OF_CLIENT.has(name));
  if (Object.keys(own).length > 0) args.push(["extra_body", own]);
  return [
    ...(hasKey ? ["import os", ""] : []),
    "import openai",
    "",
    `client = openai.OpenAI(base_url=${py(`${origin}/v1`)}, api_key=${hasKey ? 'os.environ["AICI_API_KEY"]' : '"none"'})`,
    "stream = client.chat.completions.create(",
    ...args.map(([name, value]) => `    ${name}=${py(value, 1)},`),
    "    stream=True,",
    ")",
    "for chunk in stream:",
    "    if chunk.choices:",
    '        print(chunk.choices[0].delta.content or "", end="", flush=True)',
    "",
  ].join("\n");
}

/** `aici run` continues one prompt: what it has no place for is named in a comment. */
function aici({ origin, hasKey, settings, messages }: CopyInput): string {
  const prompt = messages.findLast((message) => message.role === "user")?.content ?? "";
  const { constraint } = settings;
  const options: string[] = [`--server ${hasKey ? `"${origin}/#key=$AICI_API_KEY"` : origin}`];
  const add = (name: string, value: string | number | null) => {
    if (value !== null && value !== "") options.push(`--${name}${typeof value === "number" ? ` ${value}` : `=${shell(value)}`}`);
  };
  add("model", settings.model);
  switch (constraint.kind) {
    case "regex":
      add("regex", constraint.regex);
      break;
    case "grammar":
      if (constraint.grammarName) add("grammar", constraint.grammarName);
      else if (constraint.grammar) options.push(`--grammar <(printf %s ${shell(constraint.grammar)})`);
      break;
    case "json_schema":
      add("json-schema", constraint.schema);
      break;
    case "choices":
      for (const choice of lines(constraint.choices)) add("choice", choice);
      break;
    case "controller":
      add("controller", constraint.controller);
      add("controller-arg", constraint.argument);
      break;
    default:
  }
  add("temperature", settings.temperature ?? 1);
  add("top-k", settings.top_k);
  add("top-p", settings.top_p);
  add("seed", settings.seed);
  add("max-tokens", settings.max_tokens);
  for (const stop of stopTexts(settings.stop)) add("stop", stop);
  const left = [
    settings.system ? "the system prompt" : "",
    messages.length > 1 ? `${messages.length - 1} earlier messages` : "",
    settings.min_p !== null ? "min_p" : "",
  ].filter(Boolean);
  const note = left.length > 0 ? `# aici run has no place for: ${left.join(", ")}\n` : "";
  return `${note}aici run --chat \\\n  ${options.join(" \\\n  ")} \\\n  -- ${shell(prompt)}\n`;
}

/** Quote for a POSIX shell: nothing inside of single quotes has a meaning. */
export function shell(text: string): string {
  return /^[\w./:=@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** Write a JSON value as Python. */
export function py(value: unknown, depth = 0): string {
  const pad = "    ".repeat(depth + 1);
  const close = "    ".repeat(depth);
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return String(value);
  if (typeof value === "string") return pyText(value);
  if (Array.isArray(value)) {
    return value.length === 0 ? "[]" : `[\n${value.map((each) => `${pad}${py(each, depth + 1)},\n`).join("")}${close}]`;
  }
  const members = Object.entries(value as Record<string, unknown>);
  if (members.length === 0) return "{}";
  return `{\n${members.map(([name, each]) => `${pad}${pyText(name)}: ${py(each, depth + 1)},\n`).join("")}${close}}`;
}

/** A JSON string is a Python string, but for surrogate pairs, which JSON leaves as they are anyway. */
function pyText(text: string): string {
  return JSON.stringify(text).replaceAll("\u007f", "\\x7f");
}
