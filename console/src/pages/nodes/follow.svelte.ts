// Follows the state that the server pushes, and connects anew with growing pauses.
import { ApiError, request } from "../../lib/api.ts";
import { events } from "../../lib/sse.ts";
import { changes, pauseBefore, type Engine, type ServerState } from "./state.ts";

const UNAUTHORIZED = 401;

export class Follower {
  state = $state.raw<ServerState | null>(null);
  isConnected = $state(false);
  failure = $state<Error | null>(null);
  /** Engines that changed last, for a screen reader. */
  changed = $state.raw<{ model: string; engine: Engine }[]>([]);
  /** Seconds since 1970 on the server's clock, to the second. */
  now = $state(0);

  #receivedAt = 0;

  /** Follow until the returned function is called. */
  start(): () => void {
    const stop = new AbortController();
    void this.#run(stop.signal);
    const timer = setInterval(() => this.#tick(), 1000);
    return () => {
      stop.abort();
      clearInterval(timer);
    };
  }

  async #run(signal: AbortSignal) {
    for (let failures = 0; !signal.aborted; failures++) {
      try {
        const answer = await request("/stats/events", { headers: { Accept: "text/event-stream" }, signal });
        if (!answer.body) throw new Error("an answer without a body");
        for await (const event of events(answer.body)) {
          failures = 0;
          this.#take(JSON.parse(event.data) as ServerState);
        }
        this.failure = null;
      } catch (error) {
        if (signal.aborted) return;
        this.failure = error as Error;
        if (error instanceof ApiError && error.status === UNAUTHORIZED) return; // the dialog for the key loads the page anew
      }
      if (signal.aborted) return;
      this.isConnected = false;
      await pause(pauseBefore(failures), signal);
    }
  }

  #take(state: ServerState) {
    const changed = changes(this.state, state);
    if (changed.length) this.changed = changed;
    this.state = state;
    this.isConnected = true;
    this.failure = null;
    this.#receivedAt = performance.now();
    this.#tick();
  }

  #tick() {
    if (this.state) this.now = Math.floor(this.state.time + (performance.now() - this.#receivedAt) / 1000);
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
