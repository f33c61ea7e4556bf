// The text of tokens, which may end in the middle of a character.

export function bytesOfHex(hex: string): Uint8Array {
  const bytes = new Uint8Array(hex.length >> 1);
  for (let at = 0; at < bytes.length; at++) bytes[at] = Number.parseInt(hex.slice(2 * at, 2 * at + 2), 16);
  return bytes;
}

/** The text of bytes; bytes that are no character are written as ⟨f0⟩. */
export function textOfBytes(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    let text = "";
    for (let at = 0; at < bytes.length; ) {
      const size = characterSize(bytes, at);
      text += size ? new TextDecoder().decode(bytes.subarray(at, at + size)) : `⟨${hexOf(bytes[at]!)}⟩`;
      at += size || 1;
    }
    return text;
  }
}

export const textOfHex = (hex: string): string => textOfBytes(bytesOfHex(hex));

const hexOf = (byte: number): string => byte.toString(16).padStart(2, "0");

/** The length of the whole character at `at`; 0 if there is none. */
function characterSize(bytes: Uint8Array, at: number): number {
  const first = bytes[at]!;
  const size = first < 0x80 ? 1 : first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xf0 && first < 0xf5 ? 4 : 0;
  if (size === 0 || at + size > bytes.length) return 0;
  for (let next = at + 1; next < at + size; next++) if ((bytes[next]! & 0xc0) !== 0x80) return 0;
  return size;
}
