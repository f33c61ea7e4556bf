// A list of exactly five items, one a line, each a few words long.
//
//   aici run numbered_list.js

await $`Five things to pack for a week in the mountains:\n`;

for (let number = 1; number <= 5; number++) {
  await $`${number}. `;
  const item = await gen({ regex: /[A-Z][a-z]+( [a-z]+){0,4}/, maxTokens: 12 });
  await $`\n`;
  appendVar("items", `${item}\n`);
}
