// A chat with a state machine: what the assistant may say depends on where the conversation is, and what the user answers
// moves it on. (The user's turns are given here; a server would take them from a request.)
//
//   aici run support_chat.js

const states = {
  greet: { says: { regex: /Hello[a-zA-Z ,.!']{1,60}\?/ }, next: () => "ask" },
  ask: { says: { choices: ["Is it switched on?", "Is it plugged in?"] }, next: (user) => (user === "No." ? "fix" : "close") },
  fix: { says: { regex: /Please [a-z ,]{5,60}\./ }, next: () => "close" },
  close: { says: { choices: ["I am glad that I could help. Goodbye!", "I am sorry. Goodbye!"] }, next: () => null },
};
const user = ["Hi, my lamp stays dark.", "Yes, the one on my desk.", "No.", "It works now, thanks."];

let state = "greet";
for (const said of user) {
  await $`<|im_start|>user\n${said}<|im_end|>\n<|im_start|>assistant\n`;
  await gen({ ...states[state].says, maxTokens: 40 });
  await $`<|im_end|>\n`;
  appendVar("states", `${state} `);
  state = states[state].next(user[user.indexOf(said) + 1]);
}
