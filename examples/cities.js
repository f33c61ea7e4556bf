// A comma-separated list of cities, none twice: what was named is taken out of the choices.
//
//   aici run cities.js

const cities = ["Paris", "Rome", "Berlin", "Madrid", "Vienna", "Lisbon", "Oslo", "Prague"];

await $`My favourite cities in Europe, in order: `;

const named = [];
while (named.length < 4) {
  if (named.length > 0) await $`, `;
  const left = cities.filter((city) => !named.includes(city));
  named.push(await gen({ choices: left }));
}
await $`.`;
