// Requests to the server that answered this page. Every request goes through `request`, which adds the key of the tab.
import { texts } from "../texts.ts";
import { key } from "./key.svelte.ts";

/** The server's refusal. `status` 0: no answer came. `hint`: what to do about it, if the server says so. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string | null;
  readonly hint: string | null;

  constructor(message: string, status: number, code: string | null = null, hint: string | null = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.hint = hint;
  }
}

/** Send a request; throw ApiError unless the status is 2xx. An aborted request throws the browser's AbortError. */
export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (key.value) headers.set("Authorization", `Bearer ${key.value}`);
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers, credentials: "omit", cache: "no-store" });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError(texts.errors.unreachable, 0);
  }
  if (response.ok) return response;
  const failure = await failureOf(response);
  if (response.status === 401) key.ask();
  throw failure;
}

export async function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await request(path, { signal: signal ?? null })).json() as Promise<T>;
}

export async function sendJson(method: string, path: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  return request(path, {
    method,
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json" },
    signal: signal ?? null,
  });
}

async function failureOf(response: Response): Promise<ApiError> {
  try {
    const body = await response.json();
    const error = body.error ?? body; // AICI REST's errors have no envelope
    return new ApiError(error.message, response.status, error.code ?? null, error.hint ?? null);
  } catch {
    return new ApiError(texts.errors.status(response.status), response.status);
  }
}
