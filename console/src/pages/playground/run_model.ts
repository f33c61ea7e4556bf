// A run of a controller as the page shows it: branches of steps. Made from the events of `/v1/run`, or from a trace.

export interface LikelyToken {
  id: number;
  text: string;
  probability: number;
  allowed: boolean;
}

/** How a sampled token came about: docs/how-to/dead-end.md. */
export interface Explanation {
  num_allowed: number;
  probability: number;
  masked_probability: number;
  likeliest: LikelyToken[];
  forward_s: number;
  guest_s: number | null;
}

export interface VariableWrite {
  name: string;
  value: string;
  isAppended: boolean;
}

export type StepKind = "sampled" | "forced" | "back" | "fork" | "suspended" | "end";

/** One thing that happened in a branch. `logs` and `writes` came right before. `isTakenBack`: a later step removed the
 * token. `count`: the tokens removed by a step "back", or the new branches of a step "fork". */
export interface Step {
  kind: StepKind;
  text: string;
  token: number | null;
  isTakenBack: boolean;
  count: number;
  explanation: Explanation | null;
  allowed: number | null;
  guestS: number | null;
  logs: string;
  writes: VariableWrite[];
}

/** `inherited`: the tokens that the branch had from its parent when it began, which are no steps of its own. */
export interface Branch {
  index: number;
  parent: number | null;
  inherited: { token: number; text: string }[];
  steps: Step[];
  logs: string;
  writes: VariableWrite[];
  end: string | null;
  error: string;
}

export interface Run {
  branches: Branch[];
  usage: Record<string, number> | null;
  timings: Record<string, number | null> | null;
  warnings: string[];
}

export function newRun(): Run {
  return { branches: [newBranch(0, null)], usage: null, timings: null, warnings: [] };
}

export function newBranch(index: number, parent: number | null): Branch {
  return { index, parent, inherited: [], steps: [], logs: "", writes: [], end: null, error: "" };
}

/** Append a step, which takes the logs and writes that came before. */
export function addStep(branch: Branch, kind: StepKind, more: Partial<Step> = {}): Step {
  const step: Step = {
    kind,
    text: "",
    token: null,
    isTakenBack: false,
    count: 0,
    explanation: null,
    allowed: null,
    guestS: null,
    logs: branch.logs,
    writes: branch.writes,
    ...more,
  };
  branch.logs = "";
  branch.writes = [];
  branch.steps.push(step);
  return step;
}

/** Mark the last `count` tokens of the branch as taken back, and append the step that says so. Tokens that the branch
 * inherited stay marked in the parent as they are. */
export function takeBack(branch: Branch, count: number): void {
  let left = count;
  for (let at = branch.steps.length - 1; at >= 0 && left > 0; at--) {
    const step = branch.steps[at]!;
    if (step.token === null || step.isTakenBack) continue;
    branch.steps[at] = { ...step, isTakenBack: true }; // a new object: what shows the step sees the change
    left--;
  }
  addStep(branch, "back", { count });
}

/** The text of a token's step for a reader; special tokens, which have no text, have a name or a number. */
export function labelOf(step: Step): string {
  const named = step.explanation?.likeliest.find((each) => each.id === step.token);
  return step.text || named?.text || `⟨${step.token}⟩`;
}

/** Append that the branch waits, once for steps of waiting in a row. */
export function suspend(branch: Branch): void {
  if (branch.steps.at(-1)?.kind !== "suspended" || branch.logs || branch.writes.length > 0) addStep(branch, "suspended");
}

/** The tokens of a branch that still count, those that it inherited first. */
export function liveTokens(branch: Branch): { token: number; text: string }[] {
  const removed = branch.steps
    .filter((step) => step.kind === "back")
    .reduce((sum, step) => sum + step.count, 0);
  const own = branch.steps.filter((step) => step.token !== null);
  const ownRemoved = own.filter((step) => step.isTakenBack).length;
  const kept = branch.inherited.slice(0, Math.max(0, branch.inherited.length - (removed - ownRemoved)));
  return [
    ...kept,
    ...own.filter((step) => !step.isTakenBack).map((step) => ({ token: step.token!, text: step.text })),
  ];
}

/** The text of a branch as it stands, without what was taken back. */
export function textOf(branch: Branch): string {
  return liveTokens(branch)
    .map((each) => each.text)
    .join("");
}

/** The text of the branch's own tokens as it stands, without what the branch inherited. */
export function ownTextOf(branch: Branch): string {
  let text = "";
  for (const step of branch.steps) if (step.token !== null && !step.isTakenBack) text += step.text;
  return text;
}

/** The end of `textOf(branch)`: at least `length` characters, or all. Looks at no more steps than that needs. */
export function endOf(branch: Branch, length: number): string {
  let text = "";
  for (let at = branch.steps.length - 1; at >= 0; at--) {
    if (text.length >= length) return text;
    const step = branch.steps[at]!;
    if (step.kind === "back") return textOf(branch); // may have removed tokens that the branch inherited
    if (step.token !== null && !step.isTakenBack) text = step.text + text;
  }
  for (let at = branch.inherited.length - 1; at >= 0 && text.length < length; at--) text = branch.inherited[at]!.text + text;
  return text;
}

/** The branches in the order of a tree, each with its depth. */
export function treeOf(branches: readonly Branch[]): { branch: Branch; depth: number }[] {
  const found: { branch: Branch; depth: number }[] = [];
  const visit = (parent: number | null, depth: number) => {
    for (const branch of branches) {
      if (branch.parent !== parent) continue;
      found.push({ branch, depth });
      visit(branch.index, depth + 1);
    }
  };
  visit(null, 0);
  return found;
}

/** Probability after the mask of each likely token: refused tokens have none, the others share what is left. */
export function afterMask(explanation: Explanation): number[] {
  const { probability, masked_probability: masked } = explanation;
  const factor = probability > 0 ? masked / probability : 0;
  return explanation.likeliest.map((each) => (each.allowed ? Math.min(1, each.probability * factor) : 0));
}
