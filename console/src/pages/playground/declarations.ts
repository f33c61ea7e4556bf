// The names that scripts can use, read from the type declarations that `aici ctrl init-js` and `init-py` write.

/** `owner`: the class, interface or function that the name belongs to; empty for a name that stands alone. */
export interface Name {
  label: string;
  kind: "function" | "class" | "method" | "property" | "variable";
  owner: string;
  detail: string;
  info: string;
}

const MAX_DETAIL_CHARS = 90;

/** Read `aici.d.ts`. */
export function namesOfTypeScript(text: string): Name[] {
  const names: Name[] = [];
  let owner = "";
  let info = "";
  let comment: string[] | null = null;
  for (const line of text.split("\n")) {
    const trimmed = line.trim();
    if (comment || trimmed.startsWith("/**")) {
      comment = [...(comment ?? []), trimmed];
      if (!trimmed.endsWith("*/")) continue;
      info = comment.join(" ").replace(/^\/\*\*\s*|\s*\*\/$/g, "").replace(/ \* /g, " ");
      comment = null;
      continue;
    }
    const found =
      /^ {2}export (?:async )?function ([\w$]+)(.*?);?$/.exec(line) ?? /^ {2}export (class|interface|const) ([\w$]+)(.*)$/.exec(line);
    const member = owner && /^ {4}(?:static |readonly )*([a-zA-Z]\w*)(\??)([(:].*?);?$/.exec(line);
    if (found && found.length === 3) names.push(name(found[1]!, "function", "", found[2]!, info));
    else if (found) {
      const [, what, label, rest] = found as unknown as [string, string, string, string];
      if (what !== "interface") names.push(name(label, what === "class" ? "class" : "variable", "", "", info));
      owner = what === "const" || rest.endsWith("{}") ? "" : label;
    } else if (member && member[1] !== "constructor" && member[1] !== "private") {
      const isMethod = member[3]!.startsWith("(");
      names.push(name(member[1]!, isMethod ? "method" : "property", owner, member[3]!, info));
    } else if (/^ {2}\}/.test(line)) owner = "";
    if (trimmed !== "") info = "";
  }
  return names;
}

/** Read `aici.pyi`. */
export function namesOfPython(text: string): Name[] {
  const names: Name[] = [];
  const lines = text.split("\n");
  let owner = "";
  let parameters = "";
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at]!;
    const top = /^(?:async )?def (\w+)(\(.*)$/.exec(line);
    const type = /^class (\w+)/.exec(line);
    const method = /^ {4}(?:async )?def ([a-z]\w*)(\(.*)$/.exec(line);
    const parameter = parameters && /^ {4}(\w+): (.*?),?$/.exec(line);
    const variable = /^(\w+): (.*)$/.exec(line);
    if (line.startsWith(")")) parameters = "";
    if (top) {
      names.push(name(top[1]!, "function", "", top[2]!.replace(/:( \.\.\.)?$/, ""), docstring(lines, at)));
      parameters = top[2] === "(" ? top[1]! : "";
      owner = "";
    } else if (type) {
      owner = type[1]!;
      names.push(name(owner, "class", "", "", docstring(lines, at)));
    } else if (parameter) names.push(name(`${parameter[1]}=`, "property", parameters, parameter[2]!, ""));
    else if (method && owner) names.push(name(method[1]!, "method", owner, method[2]!.replace(/:( \.\.\.)?$/, ""), docstring(lines, at)));
    else if (variable) names.push(name(variable[1]!, "variable", "", variable[2]!, ""));
  }
  return names;
}

/** The docstring that follows the declaration at `at`, in one line. */
function docstring(lines: string[], at: number): string {
  while (at < lines.length && !/:( \.\.\.)?$/.test(lines[at]!)) at++;
  if (!lines[at + 1]?.trim().startsWith('"""')) return "";
  const words: string[] = [];
  for (let next = at + 1; next < lines.length; next++) {
    const line = lines[next]!.trim();
    words.push(line.replaceAll('"""', ""));
    if (line.endsWith('"""') && line !== '"""') break;
  }
  return words.join(" ").trim();
}

function name(label: string, kind: Name["kind"], owner: string, detail: string, info: string): Name {
  const shown = detail.trim();
  return { label, kind, owner, detail: shown.length > MAX_DETAIL_CHARS ? `${shown.slice(0, MAX_DETAIL_CHARS)}…` : shown, info };
}

/** The keys of a JSON Schema's objects, with their descriptions: completion for declarative steps. */
export function keysOfSchema(schema: unknown): Name[] {
  const found = new Map<string, Name>();
  const visit = (part: unknown) => {
    if (part === null || typeof part !== "object") return;
    const { properties } = part as { properties?: Record<string, { description?: string }> };
    for (const [key, value] of Object.entries(properties ?? {}))
      if (!found.has(key)) found.set(key, name(key, "property", "", "", value?.description ?? ""));
    for (const value of Object.values(part)) visit(value);
  };
  visit(schema);
  return [...found.values()];
}
