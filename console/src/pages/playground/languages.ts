// The languages of the editor, and the controller that each of them runs under.
export const LANGUAGES = ["javascript", "python", "steps", "regex", "grammar", "json_schema"] as const;
export type Language = (typeof LANGUAGES)[number];

const CONTROLLERS: Record<Language, string> = {
  javascript: "jsctrl",
  python: "pyctrl",
  steps: "declctrl",
  regex: "regex",
  grammar: "grammar",
  json_schema: "json_schema",
};

const SUFFIXES: Record<string, Language> = { js: "javascript", py: "python", json: "steps", y: "grammar" };

export function languageOfFile(name: string): Language {
  return SUFFIXES[name.split(".").pop() ?? ""] ?? "javascript";
}

/** What a link carries and what is saved: all that decides a run. `model`: empty for the server's first one. */
export interface Work {
  language: Language;
  source: string;
  prompt: string;
  model: string;
  maxTokens: number;
  temperature: number;
  seed: number;
  explain: number;
}

export const NEW_WORK: Work = {
  language: "javascript",
  source: "await $`The capital of France is`;\nconst city = await gen({ regex: / [A-Z][a-z]+/, maxTokens: 5 });\n",
  prompt: "",
  model: "",
  maxTokens: 100,
  temperature: 0,
  seed: 1,
  explain: 8,
};

/** The bounds of the numbers of a Work. */
export const BOUNDS = {
  maxTokens: { least: 1, most: 100_000, step: 1 },
  temperature: { least: 0, most: 2, step: 0.1 },
  seed: { least: 0, most: 2 ** 32 - 1, step: 1 },
  explain: { least: 0, most: 50, step: 1 },
} as const;

/** Return the value as a Work if it is one, with missing fields as in NEW_WORK; null for anything else. Links and saved
 * work of strangers come through here. */
export function workOf(value: unknown): Work | null {
  if (value === null || typeof value !== "object") return null;
  const given = value as Record<string, unknown>;
  const work: Record<string, unknown> = { ...NEW_WORK };
  for (const [name, before] of Object.entries(NEW_WORK)) {
    const now = given[name];
    if (now === undefined) continue;
    if (typeof now !== typeof before) return null;
    if (typeof now === "number") {
      const { least, most } = BOUNDS[name as keyof typeof BOUNDS];
      if (!(now >= least && now <= most) || (name !== "temperature" && !Number.isInteger(now))) return null;
    }
    work[name] = now;
  }
  return LANGUAGES.includes(work.language as Language) ? (work as unknown as Work) : null;
}

/** The body of `POST /v1/run`. */
export function runRequest(work: Work, models: readonly string[]): Record<string, unknown> {
  const model = models.includes(work.model) ? work.model : models[0];
  return {
    ...(model === undefined ? {} : { model }),
    controller: CONTROLLERS[work.language],
    controller_arg: work.language === "json_schema" ? `{"whitespace":"spaced","schema":${work.source}}` : work.source,
    prompt: work.prompt,
    max_tokens: work.maxTokens,
    temperature: work.temperature,
    seed: work.seed,
    explain: work.explain,
    return_tokens: true,
  };
}
