// The scripts of the folder examples/, as they are when the page is built.
import { languageOfFile, type Language } from "./languages.ts";

export interface Example {
  name: string;
  language: Language;
  load(): Promise<string>;
}

const FILES = import.meta.glob<string>(["../../../../examples/*.{js,py,json}", "../../../../examples/best_of_n/*.js"], {
  query: "?raw",
  import: "default",
});

export const EXAMPLES: Example[] = Object.entries(FILES).map(([path, load]) => {
  const name = path.split("/examples/")[1]!;
  return { name, language: languageOfFile(name), load };
});
