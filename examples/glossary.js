// Translation with a glossary: sentence by sentence; where a term of the glossary occurs in the source, the translation
// must contain its translation, word for word.
//
//   aici run glossary.js

const glossary = { controller: "Controller", token: "Token" };
const sentences = ["The controller is small.", "It reads each token.", "Then it stops."];

await $`English to German.\nEnglish: Good morning.\nGerman: Guten Morgen.\n`;
for (const sentence of sentences) {
  await $`English: ${sentence}\nGerman: `;
  const terms = Object.keys(glossary).filter((term) => sentence.includes(term));
  const words = "[A-ZÄÖÜ]?[a-zäöüß]+";
  const middle = terms.map((term) => `(${words} ){1,3}${glossary[term]}`).join(" ");
  await gen({ regex: `${middle || words}( ${words}){1,4}\\.`, maxTokens: 30 });
  await $`\n`;
}
