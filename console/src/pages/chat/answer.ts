// One answer of /v1/chat/completions as it arrives: its texts, its times, its end.
import type { Ending, Figures } from "./conversation.ts";
import { events } from "../../lib/sse.ts";

/** The failure that ends a stream which has begun. */
export class StreamError extends Error {}

/** What a chunk adds. `figures` are those of the whole answer so far. */
export interface Piece {
  text: string;
  thought: string;
  figures: Figures | null;
  ending: Ending | null;
  warnings: string[];
}

interface Chunk {
  choices?: { delta?: { content?: string | null; reasoning_content?: string | null }; finish_reason?: string | null }[];
  usage?: {
    prompt_tokens: number;
    completion_tokens: number;
    prompt_tokens_details?: { cached_tokens?: number } | null;
  } | null;
  warnings?: string[];
  error?: { message: string; hint?: string | null };
}

/** The fields of a request that the pieces need. */
export const STREAMED = {
  stream: true,
  stream_options: { include_usage: true, continuous_usage_stats: true },
} as const;

/** Yield the pieces of an answer. `sent`: when the request was sent, on the clock `now`, in milliseconds.
 *  Throws StreamError if the server ends the stream with a failure, or without an end. */
export async function* pieces(
  body: ReadableStream<Uint8Array>,
  sent: number,
  now: () => number = () => performance.now(),
): AsyncGenerator<Piece> {
  let first: number | null = null;
  let ended = false;
  for await (const event of events(body)) {
    if (event.data === "[DONE]") return;
    const chunk = JSON.parse(event.data) as Chunk;
    if (chunk.error) throw new StreamError([chunk.error.message, chunk.error.hint].filter(Boolean).join(" — "));
    const choice = chunk.choices?.[0];
    const text = choice?.delta?.content ?? "";
    const thought = choice?.delta?.reasoning_content ?? "";
    const at = now();
    if (first === null && (text || thought)) first = at;
    const ending = (choice?.finish_reason ?? null) as Ending | null;
    ended ||= ending !== null;
    yield { text, thought, ending, warnings: chunk.warnings ?? [], figures: figuresOf(chunk, sent, first, at) };
  }
  if (!ended) throw new StreamError("");
}

/** In a shorter time, tokens of several steps arrive together, and their speed is that of the connection. */
const SHORTEST_MS = 100;

function figuresOf(chunk: Chunk, sent: number, first: number | null, at: number): Figures | null {
  if (!chunk.usage || first === null) return null;
  const tokens = chunk.usage.completion_tokens;
  return {
    promptTokens: chunk.usage.prompt_tokens,
    cachedTokens: chunk.usage.prompt_tokens_details?.cached_tokens ?? 0,
    tokens,
    firstMs: first - sent,
    totalMs: at - sent,
    tokensPerSecond: tokens > 1 && at - first >= SHORTEST_MS ? ((tokens - 1) * 1000) / (at - first) : null,
  };
}
