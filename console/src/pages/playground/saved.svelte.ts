// Work saved under a name in this browser, and the draft of this tab.
import { workOf, type Work } from "./languages.ts";

const SAVED = "aici.playground.saved";
const DRAFT = "aici.playground.draft";

function read(storage: Storage, key: string): unknown {
  try {
    return JSON.parse(storage.getItem(key) ?? "null");
  } catch {
    return null;
  }
}

class Saved {
  all = $state.raw<Record<string, Work>>(readSaved());

  /** Throws if the browser has no room. */
  put(name: string, work: Work): void {
    this.#write({ ...this.all, [name]: work });
  }

  remove(name: string): void {
    const { [name]: _, ...rest } = this.all;
    this.#write(rest);
  }

  #write(all: Record<string, Work>): void {
    localStorage.setItem(SAVED, JSON.stringify(all));
    this.all = all;
  }
}

function readSaved(): Record<string, Work> {
  const found = read(localStorage, SAVED);
  if (found === null || typeof found !== "object") return {};
  return Object.fromEntries(
    Object.entries(found).flatMap(([name, value]) => {
      const work = workOf(value);
      return work ? [[name, work]] : [];
    }),
  );
}

export const saved = new Saved();

export const draft = {
  read: (): Work | null => workOf(read(sessionStorage, DRAFT)),
  write(work: Work): void {
    try {
      sessionStorage.setItem(DRAFT, JSON.stringify(work));
    } catch {
      // no room: the draft lives as long as the page
    }
  },
};
