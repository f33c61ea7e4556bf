// Conversations as a file: written by an export, read and checked by an import.
import { newId, type Conversation, type Turn } from "./conversation.ts";
import { CONSTRAINTS, NUMBERS, newSettings, type ConstraintKind, type Settings } from "./settings.ts";

const FORMAT = "aici-conversations";
const VERSION = 1;
export const MAX_FILE_BYTES = 256 << 20;
const MAX_TURNS = 5000;

/** The file is none of ours; the message says at which place. */
export class TransferError extends Error {}

export function exported(conversations: Conversation[]): string {
  return JSON.stringify({ format: FORMAT, version: VERSION, conversations }, null, 1);
}

/** Return the conversations of a file, with new ids: an import never replaces a conversation. Throws TransferError. */
export function imported(text: string): Conversation[] {
  let file: unknown;
  try {
    file = JSON.parse(text);
  } catch {
    throw new TransferError("not JSON");
  }
  const { format, version, conversations } = members(file, "file");
  if (format !== FORMAT || version !== VERSION) throw new TransferError(`not a file of ${FORMAT}, version ${VERSION}`);
  return list(conversations, "conversations").map((each, at) => conversationOf(each, `conversations[${at}]`));
}

function conversationOf(value: unknown, place: string): Conversation {
  const found = members(value, place);
  const turns = list(found.turns, `${place}.turns`).map((each, at) => turnOf(each, `${place}.turns[${at}]`));
  if (turns.length > MAX_TURNS) throw new TransferError(`${place} has more than ${MAX_TURNS} turns`);
  const ids = new Set<string>();
  for (const [at, turn] of turns.entries()) {
    const orphan = turn.parent !== null && !ids.has(turn.parent);
    // A parent stands before its children, so the turns are a forest and no path goes in a circle.
    if (orphan || ids.has(turn.id)) throw new TransferError(`${place}.turns[${at}] has no place in the tree`);
    ids.add(turn.id);
  }
  const chosen = Object.entries(members(found.chosen ?? {}, `${place}.chosen`));
  return {
    id: newId(),
    title: string(found.title ?? "", `${place}.title`).slice(0, 200),
    created: number(found.created ?? 0, `${place}.created`),
    changed: number(found.changed ?? 0, `${place}.changed`),
    settings: settingsOf(found.settings ?? {}, `${place}.settings`),
    turns,
    chosen: Object.fromEntries(chosen.filter(([, id]) => typeof id === "string")) as Record<string, string>,
  };
}

function turnOf(value: unknown, place: string): Turn {
  const found = members(value, place);
  if (found.role !== "user" && found.role !== "assistant") throw new TransferError(`${place}.role is neither user nor assistant`);
  return {
    id: string(found.id, `${place}.id`),
    parent: found.parent === null ? null : string(found.parent, `${place}.parent`),
    role: found.role,
    text: string(found.text, `${place}.text`),
    thought: string(found.thought ?? "", `${place}.thought`),
    model: string(found.model ?? "", `${place}.model`),
    ending: "stop",
    failure: "",
    warnings: [],
    figures: null,
    at: number(found.at ?? 0, `${place}.at`),
  };
}

function settingsOf(value: unknown, place: string): Settings {
  const found = members(value, place);
  const constraint = members(found.constraint ?? {}, `${place}.constraint`);
  const settings = newSettings();
  for (const name of ["model", "system", "stop"] as const) settings[name] = string(found[name] ?? "", `${place}.${name}`);
  for (const name of NUMBERS) {
    const given = found[name] ?? null;
    settings[name] = given === null ? null : number(given, `${place}.${name}`);
  }
  for (const name of Object.keys(settings.constraint) as (keyof Settings["constraint"])[]) {
    if (name !== "kind") settings.constraint[name] = string(constraint[name] ?? "", `${place}.constraint.${name}`);
  }
  const kind = constraint.kind ?? "none";
  if (!CONSTRAINTS.includes(kind as ConstraintKind)) throw new TransferError(`${place}.constraint.kind is unknown`);
  settings.constraint.kind = kind as ConstraintKind;
  return settings;
}

function members(value: unknown, place: string): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new TransferError(`${place} is no object`);
  return value as Record<string, unknown>;
}

function list(value: unknown, place: string): unknown[] {
  if (!Array.isArray(value)) throw new TransferError(`${place} is no list`);
  return value;
}

function string(value: unknown, place: string): string {
  if (typeof value !== "string") throw new TransferError(`${place} is no text`);
  return value;
}

function number(value: unknown, place: string): number {
  if (typeof value !== "number") throw new TransferError(`${place} is no number`);
  return value;
}
