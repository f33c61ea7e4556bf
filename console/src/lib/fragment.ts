// A value in the fragment of a link: JSON, compressed, in base64url. What a stranger's link holds is bounded.
const MAX_CHARS = 64 * 1024;
const MAX_BYTES = 1024 * 1024;

export class FragmentError extends Error {}

/** Throw FragmentError if the value is too large for a link. */
export async function toFragment(value: unknown): Promise<string> {
  const json = new TextEncoder().encode(JSON.stringify(value));
  const packed = await collect(through(json, new CompressionStream("deflate-raw")), Infinity);
  const text = base64url(packed);
  if (json.length > MAX_BYTES || text.length > MAX_CHARS) throw new FragmentError("too large for a link");
  return text;
}

/** Throw FragmentError for a text that `toFragment` has not made, or that is too large. */
export async function fromFragment(text: string): Promise<unknown> {
  if (text.length > MAX_CHARS || !/^[\w-]+$/.test(text)) throw new FragmentError("not a link of this page");
  try {
    const packed = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (char) => char.charCodeAt(0));
    const json = await collect(through(packed, new DecompressionStream("deflate-raw")), MAX_BYTES);
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(json));
  } catch (error) {
    throw error instanceof FragmentError ? error : new FragmentError("not a link of this page");
  }
}

function through(bytes: Uint8Array, transform: CompressionStream | DecompressionStream): ReadableStream<Uint8Array> {
  const source = new ReadableStream({
    start(controller) {
      controller.enqueue(bytes);
      controller.close();
    },
  });
  return source.pipeThrough(transform as unknown as ReadableWritablePair<Uint8Array, Uint8Array>);
}

async function collect(stream: ReadableStream<Uint8Array>, most: number): Promise<Uint8Array> {
  const reader = stream.getReader();
  const parts: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > most) {
      await reader.cancel();
      throw new FragmentError("too large for a link");
    }
    parts.push(value);
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

function base64url(bytes: Uint8Array): string {
  let binary = "";
  for (let at = 0; at < bytes.length; at += 0x8000) binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
