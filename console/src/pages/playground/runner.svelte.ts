// One run at a time: its request, its events, and the choice of a step.
import { sendJson } from "../../lib/api.ts";
import { events } from "../../lib/sse.ts";
import { takeEvent } from "./run_events.ts";
import { newRun, treeOf, type Branch, type Run, type Step } from "./run_model.ts";

class Runner {
  /** The run as it stands; a new object after every change. */
  run = $state.raw<Run | null>(null);
  isRunning = $state(false);
  failure = $state<Error | null>(null);
  branch = $state(0);
  step = $state(-1);
  #abort: AbortController | null = null;

  chosenBranch = $derived<Branch | null>(this.run?.branches[this.branch] ?? null);
  chosen = $derived<Step | null>(this.chosenBranch?.steps[this.step] ?? null);

  /** Send the request and follow it. A run before is stopped. */
  async start(request: Record<string, unknown>): Promise<void> {
    this.stop();
    const abort = (this.#abort = new AbortController());
    const model = newRun();
    this.show(model);
    this.isRunning = true;
    let isShown = true;
    const show = () => {
      if (isShown || abort !== this.#abort) return;
      isShown = true;
      this.run = copyOf(model);
    };
    try {
      const answer = await sendJson("POST", "/v1/run", request, abort.signal);
      for await (const { data } of events(answer.body!)) {
        if (data === "[DONE]") break;
        takeEvent(model, JSON.parse(data));
        if (isShown) {
          isShown = false;
          requestAnimationFrame(show);
        }
      }
    } catch (error) {
      if (!abort.signal.aborted) this.failure = error as Error;
    } finally {
      isShown = false;
      show();
      if (abort === this.#abort) this.isRunning = false;
    }
  }

  /** Leave the request, which ends the run on the server. */
  stop(): void {
    this.#abort?.abort();
    this.isRunning = false;
  }

  /** Show a run from elsewhere, such as a recording. */
  show(run: Run): void {
    this.failure = null;
    this.run = copyOf(run);
    this.branch = 0;
    this.step = -1;
  }

  choose(branch: number, step: number): void {
    this.branch = branch;
    this.step = step;
  }

  /** Choose the next step of the branch, or the one before. */
  move(by: number): void {
    const count = this.chosenBranch?.steps.length ?? 0;
    if (count > 0) this.step = Math.min(count - 1, Math.max(0, this.step + by));
  }

  /** Choose another branch, in the order of the tree. */
  turn(by: number): void {
    if (!this.run) return;
    const order = treeOf(this.run.branches).map(({ branch }) => branch);
    const at = order.findIndex((branch) => branch.index === this.branch);
    const next = order[Math.min(order.length - 1, Math.max(0, at + by))];
    if (next) this.choose(next.index, Math.min(this.step, next.steps.length - 1));
  }
}

function copyOf(run: Run): Run {
  return { ...run, branches: run.branches.map((branch) => ({ ...branch, steps: [...branch.steps] })) };
}

export const runner = new Runner();
