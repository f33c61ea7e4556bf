// Asks the server what is wrong with the source, a little after the last change.
import { sendJson } from "../../lib/api.ts";
import type { Problem } from "./editor.ts";
import type { Language } from "./languages.ts";

const PAUSE_MS = 350;

export class Checker {
  problems = $state.raw<Problem[]>([]);
  isDone = $state(false);
  #timer: ReturnType<typeof setTimeout> | undefined;
  #abort: AbortController | null = null;

  check(language: Language, text: string): void {
    this.stop();
    this.isDone = false;
    const abort = (this.#abort = new AbortController());
    this.#timer = setTimeout(async () => {
      try {
        const answer = await sendJson("POST", "/v1/check/source", { language, text }, abort.signal);
        this.problems = ((await answer.json()) as { problems: Problem[] }).problems;
        this.isDone = true;
      } catch {
        if (!abort.signal.aborted) this.problems = []; // a run says what is wrong, or that the server cannot be reached
      }
    }, PAUSE_MS);
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#abort?.abort();
  }
}
