// Characters that steer a terminal or turn the direction of a text around are shown by a sign or a number.
const STEERING = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
const SHAPELESS = /[\p{Cc}\p{Cf}]/gu;
const SPACES: Record<string, string> = { "\n": "⏎", "\t": "⇥", "\r": "␍" };

/** Return `text` with every control character, and every character that overrides the direction, made visible. */
export function visible(text: string): string {
  return text.replace(STEERING, signOf);
}

/** Return `text` for a label of one line: line breaks, tabs and all characters without a shape are visible too. */
export function visibleLabel(text: string): string {
  return text.replace(SHAPELESS, (character) => SPACES[character] ?? signOf(character));
}

function signOf(character: string): string {
  const code = character.codePointAt(0)!;
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return `[U+${code.toString(16).toUpperCase().padStart(4, "0")}]`;
}
