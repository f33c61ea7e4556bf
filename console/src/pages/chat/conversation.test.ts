import assert from "node:assert/strict";
import { test } from "node:test";
import { addTurn, chooseSibling, messagesTo, newConversation, path, titleOf } from "./conversation.ts";
import { newSettings } from "./settings.ts";

const shown = (conversation: Parameters<typeof path>[0]) => path(conversation).map((turn) => turn.text);

test("an edited turn is a branch, and each branch keeps what came after it", () => {
  const talk = newConversation(newSettings());
  const first = addTurn(talk, null, "user", "first");
  const answer = addTurn(talk, first.id, "assistant", "answer");
  addTurn(talk, answer.id, "user", "more");
  const edited = addTurn(talk, null, "user", "edited");
  addTurn(talk, edited.id, "assistant", "other");
  assert.deepEqual(shown(talk), ["edited", "other"]);
  chooseSibling(talk, first, -1);
  assert.deepEqual(shown(talk), ["edited", "other"]);
  chooseSibling(talk, edited, 1);
  assert.deepEqual(shown(talk), ["first", "answer", "more"]);
  assert.equal(talk.title, "first");
});

test("the messages of a request end with the given turn, without empty answers", () => {
  const talk = newConversation(newSettings());
  const asked = addTurn(talk, null, "user", "a");
  const failed = addTurn(talk, asked.id, "assistant");
  const again = addTurn(talk, failed.id, "user", "b");
  addTurn(talk, again.id, "assistant", "c");
  assert.deepEqual(messagesTo(talk, again.id).map((message) => message.content), ["a", "b"]);
  assert.deepEqual(messagesTo(talk, null), []);
});

test("a title is the first line, not too long", () => {
  assert.equal(titleOf("\n one\ntwo"), "one");
  assert.equal(Array.from(titleOf("🙂".repeat(100))).length, 61);
});
