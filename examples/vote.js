// Self-consistency: five forks reason on their own and vote; fork 0 waits for all votes and gives the answer.
//
//   aici run --temperature 0.8 --seed 3 vote.js

const voters = 5;

await $`Question: A train has 8 cars with 10 seats each. 15 seats are taken. How many are free?\n`;
const start = new Label();
const me = await fork(voters);

await $`Reasoning: `;
await gen({ regex: /[^\n]+/, maxTokens: 30 });
await $`\nNumber of free seats: `;
const vote = await gen({ regex: /[1-9]\d{0,2}/ });
setVar(`vote${me}`, vote);

if (me === 0) {
  const names = [...Array(voters).keys()].map((voter) => `vote${voter}`);
  const votes = (await waitVars(...names)).map((value) => value.decode());
  const count = (answer) => votes.filter((other) => other === answer).length;
  const winner = votes.reduce((best, answer) => (count(answer) > count(best) ? answer : best));
  setVar("winner", winner);
  await start.fixedAfter(`Answer (${count(winner)} of ${voters} votes): ${winner}\n`);
}
