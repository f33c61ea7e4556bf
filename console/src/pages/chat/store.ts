// Conversations in this browser (IndexedDB). At most `MAX_CONVERSATIONS` are kept, and `MAX_CHARACTERS` of text:
// the conversations that were not changed for longest go first.
import type { Conversation } from "./conversation.ts";

export const MAX_CONVERSATIONS = 200;
export const MAX_CHARACTERS = 32_000_000;

/** A line of the list. `size`: characters. */
export interface Summary {
  id: string;
  title: string;
  changed: number;
  size: number;
}

/** Return the ids to remove, so that the rest is within the bounds. `kept` is never among them. */
export function surplus(all: Summary[], kept: string, most = MAX_CONVERSATIONS, characters = MAX_CHARACTERS): string[] {
  const own = all.find((each) => each.id === kept);
  const others = all.filter((each) => each.id !== kept).sort((a, b) => b.changed - a.changed);
  let count = own ? 1 : 0;
  let size = own?.size ?? 0;
  const removed: string[] = [];
  for (const each of others) {
    count += 1;
    size += each.size;
    if (count > most || size > characters) removed.push(each.id);
  }
  return removed;
}

export class Store {
  readonly #open: Promise<IDBDatabase>;

  constructor(name = "aici-chat") {
    this.#open = new Promise((resolve, reject) => {
      const opening = indexedDB.open(name, 1);
      opening.onupgradeneeded = () => {
        opening.result.createObjectStore("summaries", { keyPath: "id" });
        opening.result.createObjectStore("conversations", { keyPath: "id" });
      };
      opening.onsuccess = () => resolve(opening.result);
      opening.onerror = () => reject(opening.error ?? new Error("IndexedDB"));
    });
    this.#open.catch(() => undefined);
  }

  /** Return the summaries, the latest change first. */
  async list(): Promise<Summary[]> {
    const db = await this.#open;
    const all = await done<Summary[]>(db.transaction("summaries").objectStore("summaries").getAll());
    return all.sort((a, b) => b.changed - a.changed);
  }

  async get(id: string): Promise<Conversation | undefined> {
    const db = await this.#open;
    return done(db.transaction("conversations").objectStore("conversations").get(id));
  }

  /** Keep a conversation, and remove others beyond the bounds. */
  async put(conversation: Conversation): Promise<void> {
    const db = await this.#open;
    const transaction = db.transaction(["summaries", "conversations"], "readwrite");
    const summaries = transaction.objectStore("summaries");
    const { id, title, changed } = conversation;
    const size = conversation.turns.reduce((sum, turn) => sum + turn.text.length + turn.thought.length, 0);
    summaries.put({ id, title, changed, size });
    transaction.objectStore("conversations").put(conversation);
    for (const other of surplus(await done<Summary[]>(summaries.getAll()), id)) {
      summaries.delete(other);
      transaction.objectStore("conversations").delete(other);
    }
    await finished(transaction);
  }

  async remove(id: string): Promise<void> {
    const db = await this.#open;
    const transaction = db.transaction(["summaries", "conversations"], "readwrite");
    transaction.objectStore("summaries").delete(id);
    transaction.objectStore("conversations").delete(id);
    await finished(transaction);
  }
}

function done<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error("IndexedDB"));
  });
}

function finished(transaction: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = transaction.onerror = () => reject(transaction.error ?? new Error("IndexedDB"));
  });
}
