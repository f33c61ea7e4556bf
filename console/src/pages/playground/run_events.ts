// The events of `POST /v1/run` with `return_tokens` and `explain`: engine/aici_engine/server/protocols/rest/README.md.
import { addStep, liveTokens, newBranch, suspend, takeBack, type Explanation, type Run } from "./run_model.ts";
import { textOfHex } from "./token_text.ts";

interface TokenItem {
  id?: number;
  bytes?: string;
  origin?: "sampled" | "forced";
  backtrack?: number;
  suspended?: boolean;
  explanation?: Explanation;
}

export interface WriteVar {
  WriteVar?: { name: string; value: string; op: "Set" | "Append" };
}

interface ForkItem {
  index: number;
  parent?: number;
  inherited_tokens?: number;
  text: string;
  error: string;
  logs: string;
  storage: WriteVar[];
  tokens?: TokenItem[];
  finish_reason?: string;
}

export interface RunEvent {
  object: string;
  forks?: ForkItem[];
  usage?: Record<string, number>;
  timings?: Record<string, number | null>;
  warnings?: string[];
}

/** Add an event to the run, which is changed in place. */
export function takeEvent(run: Run, event: RunEvent): void {
  if (event.object !== "run") return;
  const forks = event.forks ?? [];
  markForks(run, forks);
  for (const fork of forks) takeFork(run, fork);
  if (event.usage) run.usage = event.usage;
  if (event.timings) run.timings = event.timings;
  if (event.warnings) run.warnings = event.warnings;
}

/** The parents of new branches get a step that says how many there are. The event's tokens come after the fork, but for
 * those that the new branches inherit; so do its logs and variables, whose place the event does not tell. */
function markForks(run: Run, forks: ForkItem[]): void {
  const born = forks.filter((fork) => fork.parent !== undefined && !run.branches[fork.index]);
  for (const parent of new Set(born.map((fork) => fork.parent!))) {
    const item = forks.find((fork) => fork.index === parent);
    const branch = run.branches[parent];
    const children = born.filter((fork) => fork.parent === parent);
    if (!branch || !item) continue;
    const before = Math.max(0, (children[0]!.inherited_tokens ?? 0) - liveTokens(branch).length);
    const tokens = item.tokens ?? [];
    takeTokens(branch, tokens.slice(0, before));
    item.tokens = tokens.slice(before);
    addStep(branch, "fork", { count: children.length });
  }
}

function takeFork(run: Run, fork: ForkItem): void {
  let branch = run.branches[fork.index];
  let tokens = fork.tokens ?? [];
  if (!branch) {
    branch = newBranch(fork.index, fork.parent ?? 0);
    const count = fork.inherited_tokens ?? 0;
    branch.inherited = tokens.slice(0, count).map((each) => ({ token: each.id!, text: textOfHex(each.bytes ?? "") }));
    tokens = tokens.slice(count);
    run.branches[fork.index] = branch;
  }
  takeNotes(branch, fork);
  takeTokens(branch, tokens);
  if (fork.error) branch.error = fork.error;
  if (fork.finish_reason && branch.end === null) {
    branch.end = fork.finish_reason;
    addStep(branch, "end", { text: fork.finish_reason });
  }
}

function takeNotes(branch: Run["branches"][number], fork: ForkItem): void {
  branch.logs += fork.logs;
  branch.writes = [...branch.writes, ...writesOf(fork.storage)];
  fork.logs = "";
  fork.storage = [];
}

function takeTokens(branch: Run["branches"][number], tokens: TokenItem[]): void {
  for (const token of tokens) {
    if (token.backtrack !== undefined) takeBack(branch, token.backtrack);
    else if (token.suspended) suspend(branch);
    else
      addStep(branch, token.origin ?? "sampled", {
        token: token.id ?? null,
        text: textOfHex(token.bytes ?? ""),
        explanation: token.explanation ?? null,
        allowed: token.explanation?.num_allowed ?? null,
        guestS: token.explanation?.guest_s ?? null,
      });
  }
}

export function writesOf(storage: readonly WriteVar[]): { name: string; value: string; isAppended: boolean }[] {
  return storage.flatMap(({ WriteVar: write }) =>
    write ? [{ name: write.name, value: textOfHex(write.value), isAppended: write.op === "Append" }] : [],
  );
}
