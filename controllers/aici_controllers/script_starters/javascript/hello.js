// aici run hello.js
import { choose, list } from "aici/helpers";

await $`Three things to take along on a walk:\n`;
const things = await list(3, { maxTokens: 10 });

await $`The one that weighs most: `;
const heaviest = await choose(things);

setVar("heaviest", heaviest);
console.log("asked about", things);
