// A conversation is a tree of turns: an edited or regenerated turn is a sibling of the first. `chosen` says which child
// of a turn is shown; the path from the root by chosen children is what the page shows and what the model reads.
import type { Message, Settings } from "./settings.ts";

export type Ending = "stop" | "length" | "stopped" | "failed" | "interrupted" | "tool_calls";

/** Times in milliseconds. `tokensPerSecond` counts from the first token on; null for a time that is too short. */
export interface Figures {
  promptTokens: number;
  cachedTokens: number;
  tokens: number;
  firstMs: number;
  totalMs: number;
  tokensPerSecond: number | null;
}

/** `thought`: what a reasoning model wrote before its answer. `ending`: null while the answer is written. */
export interface Turn {
  id: string;
  parent: string | null;
  role: "user" | "assistant";
  text: string;
  thought: string;
  model: string;
  ending: Ending | null;
  failure: string;
  warnings: string[];
  figures: Figures | null;
  at: number;
}

export interface Conversation {
  id: string;
  title: string;
  created: number;
  changed: number;
  settings: Settings;
  turns: Turn[];
  chosen: Record<string, string>;
}

const ROOT = "";
const TITLE_LENGTH = 60;

export function newId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function newConversation(settings: Settings, now = Date.now()): Conversation {
  return { id: newId(), title: "", created: now, changed: now, settings, turns: [], chosen: {} };
}

/** Return the turns by their parent; the first turns by null. */
export function childrenOf(conversation: Conversation): Map<string | null, Turn[]> {
  const children = new Map<string | null, Turn[]>();
  for (const turn of conversation.turns) {
    const known = children.get(turn.parent);
    if (known) known.push(turn);
    else children.set(turn.parent, [turn]);
  }
  return children;
}

/** Return the turns that are shown, first to last. */
export function path(conversation: Conversation, children = childrenOf(conversation)): Turn[] {
  const found: Turn[] = [];
  for (let parent: string | null = null; ; ) {
    const here: Turn[] = children.get(parent) ?? [];
    const next: Turn | undefined = here.find((turn) => turn.id === conversation.chosen[parent ?? ROOT]) ?? here.at(-1);
    if (!next) return found;
    found.push(next);
    parent = next.id;
  }
}

/** Add a turn below `parent` and choose it. The first user's turn names the conversation. */
export function addTurn(
  conversation: Conversation,
  parent: string | null,
  role: Turn["role"],
  text = "",
  now = Date.now(),
): Turn {
  const ending: Ending | null = role === "user" ? "stop" : null;
  const turn: Turn = {
    id: newId(),
    parent,
    role,
    text,
    thought: "",
    model: "",
    ending,
    failure: "",
    warnings: [],
    figures: null,
    at: now,
  };
  conversation.turns.push(turn);
  conversation.chosen[parent ?? ROOT] = turn.id;
  conversation.changed = now;
  if (!conversation.title && role === "user") conversation.title = titleOf(text);
  return conversation.turns.at(-1) ?? turn;
}

/** Show another sibling: `step` 1 is the next, -1 the one before. The first follows the last. */
export function chooseSibling(conversation: Conversation, turn: Turn, step: 1 | -1): void {
  const all = conversation.turns.filter((each) => each.parent === turn.parent);
  const other = all.at((all.findIndex((each) => each.id === turn.id) + step) % all.length);
  if (other) conversation.chosen[turn.parent ?? ROOT] = other.id;
}

/** Return the messages from the first turn to the turn with the id `last`; none for null. Empty answers are left out. */
export function messagesTo(conversation: Conversation, last: string | null): Message[] {
  const byId = new Map(conversation.turns.map((turn) => [turn.id, turn]));
  const found: Message[] = [];
  for (let turn = byId.get(last ?? ROOT); turn; turn = byId.get(turn.parent ?? ROOT)) {
    if (turn.text !== "" || turn.role === "user") found.unshift({ role: turn.role, content: turn.text });
  }
  return found;
}

export function titleOf(text: string): string {
  const line = text.trim().split("\n")[0] ?? "";
  const letters = Array.from(line);
  return letters.length > TITLE_LENGTH ? `${letters.slice(0, TITLE_LENGTH).join("")}…` : line;
}
