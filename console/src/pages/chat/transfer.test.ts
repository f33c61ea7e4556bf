import assert from "node:assert/strict";
import { test } from "node:test";
import { addTurn, newConversation, path } from "./conversation.ts";
import { newSettings } from "./settings.ts";
import { surplus } from "./store.ts";
import { exported, imported, TransferError } from "./transfer.ts";

test("an export is read by an import, with another id", () => {
  const settings = { ...newSettings(), seed: 4, constraint: { ...newSettings().constraint, kind: "regex", regex: "a" } as const };
  const talk = newConversation(settings);
  const asked = addTurn(talk, null, "user", "a\u0000b");
  addTurn(talk, asked.id, "assistant", "c").ending = "length";
  addTurn(talk, null, "user", "d");
  talk.chosen[""] = asked.id;
  const [read] = imported(exported([talk]));
  assert.ok(read);
  assert.notEqual(read.id, talk.id);
  assert.deepEqual(read.settings, settings);
  assert.deepEqual(path(read).map((turn) => turn.text), ["a\u0000b", "c"]);
});

test("files of other kinds are refused, with the place", () => {
  const turn = { id: "1", parent: null, role: "user", text: "a" };
  const file = (...turns: unknown[]) => JSON.stringify({ format: "aici-conversations", version: 1, conversations: [{ turns }] });
  assert.equal(imported(file(turn)).length, 1);
  const cases: [string, RegExp][] = [
    ["{", /not JSON/],
    ["[]", /file is no object/],
    ["{}", /not a file of aici-conversations/],
    [file({ ...turn, role: "system" }), /conversations\[0\]\.turns\[0\]\.role/],
    [file({ ...turn, text: 1 }), /turns\[0\]\.text is no text/],
    [file({ ...turn, parent: "2" }, { ...turn, id: "2", parent: "1" }), /turns\[0\] has no place in the tree/],
    [file(turn, turn), /turns\[1\] has no place/],
  ];
  for (const [text, message] of cases) {
    assert.throws(() => imported(text), (error) => error instanceof TransferError && message.test(error.message));
  }
});

test("the conversations that were not changed for longest go first", () => {
  const line = (id: string, changed: number, size = 1) => ({ id, changed, size, title: "" });
  const all = [line("a", 1), line("b", 3), line("c", 2)];
  assert.deepEqual(surplus(all, "b", 2), ["a"]);
  assert.deepEqual(surplus(all, "a", 1), ["b", "c"]);
  assert.deepEqual(surplus([line("a", 1, 50), line("b", 2, 60)], "b", 9, 100), ["a"]);
  assert.deepEqual(surplus(all, "b", 3), []);
});
