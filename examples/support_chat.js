// A chat with a state machine: what the assistant may say depends on where the conversation is, and the user's turns
// (scripted here) move it on.
//
//   aici run support_chat.js

const states = {
  greet: { says: { regex: /Hello[^<\n]{1,60}\?/ }, next: () => "ask" },
  ask: { says: { choices: ["Is it switched on?", "Is it plugged in?"] }, next: (user) => (user.includes("no") ? "fix" : "close") },
  fix: { says: { regex: /Please [a-z ,]{5,60}\./ }, next: () => "close" },
  close: { says: { choices: ["I am glad that I could help. Goodbye!"] }, next: () => null },
};
const user = ["Hi, my lamp stays dark.", "no", "It works now, thanks."];

let state = "greet";
for (let turn = 0; state; turn++) {
  const said = user[turn] ?? "Goodbye.";
  await $`<|im_start|>user\n${said}<|im_end|>\n<|im_start|>assistant\n`;
  if (turn > 0) state = states[state].next(said);
  if (!state) break;
  await gen({ ...states[state].says, maxTokens: 40 });
  appendVar("states", `${state} `);
  await $`<|im_end|>\n`;
  if (state === "close") break;
}
