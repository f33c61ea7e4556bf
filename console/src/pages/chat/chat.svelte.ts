// The state of the chat page. One answer runs at a time; the answer goes on while another page of the console is open.
import { sendJson } from "../../lib/api.ts";
import { visible } from "../../lib/visible.ts";
import { texts } from "../../texts.ts";
import { pieces, STREAMED, StreamError, type Piece } from "./answer.ts";
import {
  addTurn,
  childrenOf,
  chooseSibling,
  messagesTo,
  newConversation,
  path,
  type Conversation,
  type Figures,
  type Turn,
} from "./conversation.ts";
import { newSettings, requestOf, type Message } from "./settings.ts";
import { Store, type Summary } from "./store.ts";
import { exported, imported } from "./transfer.ts";

/** The page shows new text so often, in milliseconds: each time costs a layout. */
const SHOW_EVERY_MS = 60;
const SAVE_AFTER_MS = 500;
/** What a browser that is closed during an answer loses at most. */
const SAVE_EVERY_MS = 5000;

class Chat {
  now = $state<Conversation>(newConversation(newSettings()));
  /** The message that is being written: another page of the console may be opened in between. */
  draft = $state("");
  list = $state<Summary[]>([]);
  /** The turn that is being answered. */
  running = $state<Turn | null>(null);
  /** What a screen reader says. */
  said = $state("");
  /** Why conversations are not kept, or why a file was refused. */
  problem = $state("");
  readonly #children = $derived(childrenOf(this.now));
  readonly turns = $derived(path(this.now, this.#children));
  #abort: AbortController | null = null;
  #store = new Store();
  #unsaved: Conversation | null = null;
  #saving: ReturnType<typeof setTimeout> | undefined;
  #removed = new Set<string>();

  async load() {
    await this.#kept(async () => {
      this.list = await this.#store.list();
    });
  }

  // Conversations

  create() {
    this.#leave();
    this.now = newConversation($state.snapshot(this.now.settings));
    this.problem = "";
  }

  async open(id: string) {
    if (id === this.now.id) return;
    this.#leave();
    await this.#kept(async () => {
      const found = await this.#store.get(id);
      if (!found) return;
      for (const turn of found.turns) turn.ending ??= "interrupted";
      this.now = found;
    });
  }

  async remove(id: string) {
    this.#removed.add(id);
    if (id === this.now.id) this.create();
    await this.#kept(async () => {
      await this.#store.remove(id);
      this.list = await this.#store.list();
    });
  }

  /** Return the conversations as the text of a file. */
  async export(ids: string[]): Promise<string> {
    const found = await Promise.all(ids.map((id) => this.#store.get(id)));
    return exported(found.filter((each) => each !== undefined));
  }

  /** Keep the conversations of a file, and open the first. */
  async import(text: string) {
    await this.#kept(async () => {
      const found = imported(text);
      for (const each of found) await this.#store.put(each);
      this.list = await this.#store.list();
      if (found[0]) await this.open(found[0].id);
    });
  }

  /** Keep the conversation soon. An empty conversation is not kept. */
  save(afterMs = SAVE_AFTER_MS) {
    clearTimeout(this.#saving);
    if (this.now.turns.length === 0) return;
    this.#unsaved = this.now;
    this.#saving = setTimeout(() => this.#save(), afterMs);
  }

  #save() {
    clearTimeout(this.#saving);
    const conversation = this.#unsaved;
    this.#unsaved = null;
    if (conversation) void this.#put(conversation);
  }

  async #put(conversation: Conversation) {
    // An answer of a removed conversation ends after the conversation.
    if (this.#removed.has(conversation.id)) return;
    await this.#kept(async () => {
      await this.#store.put($state.snapshot(conversation) as Conversation);
      this.list = await this.#store.list();
    });
  }

  #leave() {
    this.stop();
    this.#save();
  }

  // Turns

  async send(text: string) {
    if (this.running || text.trim() === "") return;
    const parent = this.turns.at(-1)?.id ?? null;
    const asked = addTurn(this.now, parent, "user", text);
    await this.#answer(addTurn(this.now, asked.id, "assistant"));
  }

  /** Ask once more: the new answer stands beside the old answer. */
  async regenerate(turn: Turn) {
    if (!this.running) await this.#answer(addTurn(this.now, turn.parent, "assistant"));
  }

  /** Put another text in the place of a turn, as a branch. A changed question is answered anew. */
  async edit(turn: Turn, text: string) {
    if (this.running) return;
    const branch = addTurn(this.now, turn.parent, turn.role, text);
    if (turn.role === "user") return this.#answer(addTurn(this.now, branch.id, "assistant"));
    branch.ending = "stop";
    this.save();
  }

  /** Let the model go on from the end of an answer. */
  async continue(turn: Turn) {
    if (!this.running) await this.#answer(turn);
  }

  /** Return the turns in the same place, `turn` among them. */
  branches(turn: Turn): Turn[] {
    return this.#children.get(turn.parent) ?? [];
  }

  choose(turn: Turn, step: 1 | -1) {
    chooseSibling(this.now, turn, step);
    this.save();
  }

  /** End the answer. The server frees the sequence when the connection closes. */
  stop() {
    this.#abort?.abort();
  }

  /** Return the messages that the next request would have, with the draft as the last. */
  messages(): Message[] {
    const all = messagesTo(this.now, this.turns.at(-1)?.id ?? null);
    if (this.draft.trim()) return [...all, { role: "user", content: this.draft }];
    return all.at(-1)?.role === "assistant" ? all.slice(0, -1) : all;
  }

  async #answer(turn: Turn) {
    const conversation = this.now;
    const continues = turn.text !== "";
    const messages = messagesTo(conversation, continues ? turn.id : turn.parent);
    const body = {
      ...requestOf($state.snapshot(conversation.settings), messages),
      ...STREAMED,
      ...(continues ? { continue_final_message: true, add_generation_prompt: false } : {}),
    };
    turn.ending = null;
    turn.failure = "";
    turn.model = conversation.settings.model;
    this.running = turn;
    this.said = texts.chat.said.begun;
    this.save(0);
    const abort = (this.#abort = new AbortController());
    const shown = new Shown(turn);
    try {
      const sent = performance.now();
      const response = await sendJson("POST", "/v1/chat/completions", body, abort.signal);
      if (!response.body) throw new StreamError(texts.chat.cut);
      let saved = sent;
      for await (const piece of pieces(response.body, sent)) {
        shown.add(piece);
        if (performance.now() - saved < SAVE_EVERY_MS) continue;
        saved = performance.now();
        void this.#put(conversation);
      }
      shown.flush();
      turn.ending ??= "stop";
    } catch (error) {
      shown.flush();
      turn.ending = abort.signal.aborted ? "stopped" : "failed";
      if (turn.ending === "failed") turn.failure = failureText(error);
    }
    this.running = null;
    this.#abort = null;
    this.said = turn.failure || texts.chat.said.ended(visible(turn.text), turn.figures?.tokens ?? 0);
    conversation.changed = Date.now();
    await this.#put(conversation);
  }

  /** Do something with the store; say why it failed. */
  async #kept(work: () => Promise<void>) {
    try {
      await work();
      this.problem = "";
    } catch (error) {
      this.problem = texts.chat.storeFailed((error as Error).message);
    }
  }
}

/** Collects pieces, and adds them to a turn a few times a second. */
class Shown {
  readonly #turn: Turn;
  #text = "";
  #thought = "";
  #figures: Figures | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(turn: Turn) {
    this.#turn = turn;
  }

  add(piece: Piece) {
    this.#text += piece.text;
    this.#thought += piece.thought;
    if (piece.figures) this.#figures = piece.figures;
    if (piece.warnings.length > 0) this.#turn.warnings = piece.warnings;
    if (piece.ending) this.#turn.ending = piece.ending;
    this.#timer ??= setTimeout(() => this.flush(), SHOW_EVERY_MS);
  }

  flush() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#text) this.#turn.text += this.#text;
    if (this.#thought) this.#turn.thought += this.#thought;
    if (this.#figures) this.#turn.figures = this.#figures;
    this.#text = this.#thought = "";
  }
}

function failureText(error: unknown): string {
  const { message, hint } = error as { message: string; hint?: string | null };
  return [message || texts.chat.cut, hint].filter(Boolean).join(" — ");
}

export const chat = new Chat();
