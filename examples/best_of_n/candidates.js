// Four answers at once, each in a fork of its own: they share the prompt's place in the cache.
// pick.py chooses among them by their log-probabilities.
//
//   aici run --json --logprobs 0 --temperature 0.9 --seed 1 candidates.js | python pick.py

await $`A slogan for a small bakery: "`;
await fork(4);
await gen({ regex: /[A-Z][a-z]+( [a-z]+){2,7}[.!]/, maxTokens: 24 });
await $`"`;
