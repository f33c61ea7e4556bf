// The settings of a conversation, and the request that they make. A setting that is null is left to the server.
export const CONSTRAINTS = ["none", "regex", "grammar", "json_schema", "choices", "controller"] as const;
export type ConstraintKind = (typeof CONSTRAINTS)[number];

/** Every kind keeps its own text, so that a change of the kind loses nothing.
 *  `grammarName`: the shipped grammar whose text `grammar` is; empty for a text of the user's own. */
export interface Constraint {
  kind: ConstraintKind;
  regex: string;
  grammar: string;
  grammarName: string;
  schema: string;
  choices: string;
  controller: string;
  argument: string;
}

export const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "seed", "max_tokens"] as const;
export type NumberName = (typeof NUMBERS)[number];

/** `model`: empty for the server's default. `stop`: a text a line, with \n, \t and \\ as escapes. */
export interface Settings extends Record<NumberName, number | null> {
  model: string;
  system: string;
  stop: string;
  constraint: Constraint;
}

export interface Message {
  role: "system" | "user" | "assistant";
  content: string;
}

/** The bounds of the number fields: those of the server. */
export const BOUNDS: Record<NumberName, { min: number; max?: number; step: number | "any" }> = {
  temperature: { min: 0, max: 100, step: "any" },
  top_p: { min: 0, max: 1, step: "any" },
  top_k: { min: -1, step: 1 },
  min_p: { min: 0, max: 1, step: "any" },
  seed: { min: 0, max: Number.MAX_SAFE_INTEGER, step: 1 },
  max_tokens: { min: 1, step: 1 },
};

export function newSettings(): Settings {
  return {
    model: "",
    system: "",
    stop: "",
    temperature: null,
    top_p: null,
    top_k: null,
    min_p: null,
    seed: null,
    max_tokens: null,
    constraint: {
      kind: "none",
      regex: "",
      grammar: "",
      grammarName: "",
      schema: "",
      choices: "",
      controller: "",
      argument: "",
    },
  };
}

/** Return the request's fields for the constraint; none while its text is empty. */
export function constraintFields(constraint: Constraint): Record<string, unknown> {
  switch (constraint.kind) {
    case "regex":
      return constraint.regex ? { guided_regex: constraint.regex } : {};
    case "grammar": {
      const syntax = constraint.grammarName ? { grammar_syntax: "y" } : {};
      return constraint.grammar.trim() ? { guided_grammar: constraint.grammar, ...syntax } : {};
    }
    case "json_schema":
      return constraint.schema.trim() ? { guided_json: jsonOr(constraint.schema) } : {};
    case "choices": {
      const choices = lines(constraint.choices);
      return choices.length > 0 ? { guided_choice: choices } : {};
    }
    case "controller":
      return constraint.controller
        ? { controller: constraint.controller, ...(constraint.argument ? { controller_arg: constraint.argument } : {}) }
        : {};
    default:
      return {};
  }
}

/** Return the body of a request to /v1/chat/completions, without the fields of streaming. */
export function requestOf(settings: Settings, turns: Message[]): Record<string, unknown> {
  const system: Message[] = settings.system ? [{ role: "system", content: settings.system }] : [];
  const stop = stopTexts(settings.stop);
  const numbers = NUMBERS.filter((name) => typeof settings[name] === "number").map((name) => [name, settings[name]]);
  return {
    model: settings.model || "default",
    messages: [...system, ...turns],
    ...Object.fromEntries(numbers),
    ...(stop.length > 0 ? { stop } : {}),
    ...constraintFields(settings.constraint),
  };
}

export function lines(text: string): string[] {
  return text.split("\n").filter((line) => line !== "");
}

export function stopTexts(text: string): string[] {
  const escapes: Record<string, string> = { n: "\n", t: "\t", "\\": "\\" };
  return lines(text).map((line) => line.replace(/\\([nt\\])/g, (_, letter: string) => escapes[letter] ?? letter));
}

/** Text that is no JSON goes to the server as it stands: the server says what is wrong with it. */
function jsonOr(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}
