// Reads a recording of AICI_TRACE (runtime/aici_runtime/recordings/trace.py): the runs in it, without a model.
import { addStep, newBranch, newRun, suspend, takeBack, type Branch, type Run } from "./run_model.ts";
import { writesOf, type WriteVar } from "./run_events.ts";
import { textOfHex } from "./token_text.ts";

/** `program`: the argument of the controller. */
export interface TracedRun {
  name: string;
  program: string;
  run: Run;
}

export class TraceError extends Error {}

/** What the runtime answered for a sequence. */
interface Answer {
  error?: string;
  logs?: string;
  storage?: WriteVar[];
  micros?: number;
  result?: { suspend?: boolean; num_forks?: number; ff_tokens?: number[]; backtrack?: number; stop?: boolean; late?: boolean } | null;
}

interface Operation {
  id: number;
  req_id?: string;
  clone_id?: number | null;
  tokens?: number[];
  backtrack?: number;
}

interface Line {
  suff: string;
  // `any`: whatever the file says; a line of another shape is refused where it is read.
  cmd: any;
  resp: any;
  aicirt?: unknown;
  texts?: Record<string, string>;
  allowed?: Record<string, number>;
}

/** The sequences of a runtime, by their ids. */
class Session {
  readonly requests = new Map<string, TracedRun>();
  readonly sequences = new Map<number, { traced: TracedRun; branch: Branch; mid: Mid | null }>();
}

interface Mid {
  isForced: boolean;
  guestS: number | null;
  allowed: number | null;
}

/** Return the runs of a recording that have begun, in order. Throw TraceError for a text that is none. */
export function readTrace(text: string): TracedRun[] {
  const found: TracedRun[] = [];
  const texts = new Map<number, string>();
  let session = new Session();
  const lines = text.split("\n");
  lines.forEach((each, at) => {
    if (each.trim() === "") return;
    const line = parsed(each, at, lines.length);
    if (line === null) return;
    for (const [id, hex] of Object.entries(line.texts ?? {})) texts.set(Number(id), textOfHex(hex));
    if (line.aicirt) session = new Session();
    try {
      new Reading(session, line, texts, found).read();
    } catch (error) {
      throw error instanceof TraceError ? error : new TraceError(`line ${at + 1} is not a message of a recording`);
    }
  });
  if (found.length === 0) throw new TraceError("the recording has no run");
  return found;
}

function parsed(text: string, at: number, count: number): Line | null {
  try {
    const line = JSON.parse(text);
    if (line !== null && typeof line === "object" && "suff" in line && "cmd" in line && "resp" in line) return line;
  } catch {
    if (at > 0 && at === count - 1) return null; // the recorder was cut off
  }
  throw new TraceError(`line ${at + 1} is not a line of a recording`);
}

/** One exchange. */
class Reading {
  readonly session: Session;
  readonly line: Line;
  readonly texts: Map<number, string>;
  readonly found: TracedRun[];

  constructor(session: Session, line: Line, texts: Map<number, string>, found: TracedRun[]) {
    this.session = session;
    this.line = line;
    this.texts = texts;
    this.found = found;
  }

  read(): void {
    const { cmd, resp } = this.line;
    if (cmd?.op === "instantiate") return this.instantiate();
    if (!["turn_process", "post_pre_process", "mid_process"].includes(cmd?.op) || resp?.type !== "ok") return;
    const data = resp.data;
    if ("first_mask_byte_offset" in data) throw new TraceError("recordings of protocol v2 cannot be shown");
    for (const operation of (cmd.post_ops ?? []) as Operation[]) this.post(operation, data.post_seqs?.[operation.id]);
    for (const operation of (cmd.pre_ops ?? []) as Operation[]) this.begin(operation);
    for (const [id, answer] of Object.entries((data.pre_seqs ?? {}) as Record<string, Answer>)) this.pre(Number(id), answer);
    for (const operation of (cmd.ops ?? []) as Operation[]) this.fork(operation);
    for (const operation of (cmd.ops ?? []) as Operation[]) this.mid(operation, data.seqs?.[operation.id]);
    for (const id of (cmd.freed ?? []) as number[]) this.end(id, "ended");
  }

  private instantiate(): void {
    const { cmd, resp } = this.line;
    const argument = typeof cmd.module_arg === "string" ? cmd.module_arg : JSON.stringify(cmd.module_arg);
    const traced = { name: String(cmd.req_id), program: argument, run: newRun() };
    this.session.requests.set(cmd.req_id, traced);
    this.found.push(traced);
    const branch = traced.run.branches[0]!;
    const answer = resp?.data as Answer | undefined;
    if (resp?.type === "ok" && answer) this.note(branch, answer);
    else fail(branch, String(resp?.error ?? "the controller did not start"));
  }

  private begin(operation: Operation): void {
    const request = operation.req_id === undefined ? undefined : this.session.requests.get(operation.req_id);
    if (request) this.session.sequences.set(operation.id, { traced: request, branch: request.run.branches[0]!, mid: null });
  }

  private pre(id: number, answer: Answer): void {
    const branch = this.branch(id);
    if (!branch) return;
    this.note(branch, answer);
    for (const token of answer.result?.ff_tokens ?? []) this.token(branch, token, true);
    if (answer.result?.suspend && !answer.result.late) suspend(branch); // a late guest sits out a step
    const forks = answer.result?.num_forks ?? 1;
    if (forks > 1) addStep(branch, "fork", { count: forks - 1 });
    if (forks === 0) this.end(id, "aici-stop");
  }

  private fork(operation: Operation): void {
    if (operation.clone_id == null) return;
    const parent = this.session.sequences.get(operation.clone_id);
    if (!parent || this.session.sequences.has(operation.id)) return;
    const branches = parent.traced.run.branches;
    const branch = newBranch(branches.length, parent.branch.index);
    const inherited = parent.branch.steps.filter((step) => step.token !== null && !step.isTakenBack);
    branch.inherited = [
      ...parent.branch.inherited,
      ...inherited.map((step) => ({ token: step.token!, text: step.text })),
    ];
    branches.push(branch);
    this.session.sequences.set(operation.id, { traced: parent.traced, branch, mid: null });
  }

  private mid(operation: Operation, answer: Answer | undefined): void {
    const sequence = this.session.sequences.get(operation.id);
    if (!sequence || !answer) return;
    this.note(sequence.branch, answer);
    const allowed = this.line.allowed?.[operation.id] ?? null;
    const isForced = answer.result != null;
    const guestS = answer.micros === undefined ? null : answer.micros / 1e6;
    sequence.mid = { isForced, guestS, allowed: isForced ? null : allowed };
  }

  private post(operation: Operation, answer: Answer | undefined): void {
    const branch = this.branch(operation.id);
    if (!branch) return;
    const sequence = this.session.sequences.get(operation.id)!;
    if (operation.backtrack) takeBack(branch, operation.backtrack);
    for (const token of operation.tokens ?? []) this.token(branch, token, sequence.mid?.isForced ?? false, sequence.mid);
    sequence.mid = null;
    if (!answer) return;
    this.note(branch, answer);
    if (answer.result?.stop) this.end(operation.id, "aici-stop");
  }

  private token(branch: Branch, token: number, isForced: boolean, mid: Mid | null = null): void {
    const text = this.texts.get(token) ?? `⟨${token}⟩`;
    const told = isForced || !mid ? {} : { guestS: mid.guestS, allowed: mid.allowed };
    addStep(branch, isForced ? "forced" : "sampled", { token, text, ...told });
  }

  private note(branch: Branch, answer: Answer): void {
    branch.logs += answer.logs ?? "";
    branch.writes = [...branch.writes, ...writesOf(answer.storage ?? [])];
    if (answer.error) fail(branch, answer.error);
  }

  private branch(id: number): Branch | undefined {
    return this.session.sequences.get(id)?.branch;
  }

  private end(id: number, reason: string): void {
    const branch = this.branch(id);
    if (branch && branch.end === null) end(branch, reason);
  }
}

function fail(branch: Branch, error: string): void {
  branch.error = error;
  if (branch.end === null) end(branch, "fail");
}

function end(branch: Branch, reason: string): void {
  branch.end = reason;
  addStep(branch, "end", { text: reason });
}
