// The interface between a controller and the runtime; `aici.h` describes every call.

@external("env", "aici_host_read_blob")
declare function readBlobInto(blob: u32, dst: usize, size: u32): u32;
@external("env", "aici_host_token_trie")
declare function trieBlob(): u32;
@external("env", "aici_host_module_arg")
declare function moduleArgBlob(): u32;
@external("env", "aici_host_process_arg")
declare function processArgBlob(): u32;
@external("env", "aici_host_tokenize")
declare function tokenizeBlob(src: usize, len: u32): u32;
@external("env", "aici_host_return_logit_bias")
declare function returnMask(mask: usize): void;
@external("env", "aici_host_return_process_result")
declare function returnResult(src: usize, len: u32): void;
@external("env", "aici_host_eos_token")
export declare function eosToken(): u32;
@external("env", "aici_host_stop")
declare function stopHere(): void;
@external("wasi_snapshot_preview1", "fd_write")
declare function fdWrite(fd: u32, vectors: usize, numVectors: u32, written: usize): u32;

export type Token = u32;

/// The decision before the next token: 0 forks stop, more than 1 fork; `ffTokens` are appended without sampling.
export class PreResult {
  constructor(public ffTokens: Token[] = [], public numForks: u32 = 1, public suspend: bool = false) {}
}

/// The decision about the next token. Without a mask: stop, or remove `backtrack` tokens and append `ffTokens`.
export class MidResult {
  constructor(public mask: Mask | null, public backtrack: u32 = 0, public ffTokens: Token[] = []) {}
  static stop(): MidResult {
    return new MidResult(null);
  }
}

/// One bit per token.
export class Mask {
  private words: StaticArray<u32> = new StaticArray<u32>((vocabSize() + 31) / 32);
  clear(): void {
    this.words.fill(0);
  }
  allow(token: Token): void {
    this.words[token / 32] |= 1 << (token % 32);
  }
  giveBack(): void {
    returnMask(changetype<usize>(this.words));
  }
}

export abstract class Controller {
  initPrompt(_prompt: Token[]): void {}
  preProcess(): PreResult {
    return new PreResult();
  }
  abstract midProcess(forkGroup: u32[]): MidResult;
  /// `tokens` were appended after `backtrack` tokens had been removed. Returns whether to stop.
  postProcess(tokens: Token[], _backtrack: u32): bool {
    return tokens.includes(eosToken());
  }
}

function readBlob(blob: u32): ArrayBuffer {
  const bytes = new ArrayBuffer(readBlobInto(blob, 0, 0));
  readBlobInto(blob, changetype<usize>(bytes), bytes.byteLength);
  return bytes;
}

export function vocabSize(): u32 {
  const header = new StaticArray<u32>(7);
  readBlobInto(trieBlob(), changetype<usize>(header), 28);
  return header[5];
}

/// The argument of this controller, from the request.
export function moduleArg(): string {
  return String.UTF8.decode(readBlob(moduleArgBlob()));
}

/// The tokens of a text, without special tokens.
export function tokenize(text: string): Token[] {
  const utf8 = String.UTF8.encode(text);
  const blob = readBlob(tokenizeBlob(changetype<usize>(utf8), utf8.byteLength));
  const tokens: Token[] = [];
  for (let at = 0; at < blob.byteLength; at += 4) tokens.push(load<u32>(changetype<usize>(blob) + at));
  return tokens;
}

/// Appends a line to the log of this guest.
export function log(line: string): void {
  const utf8 = String.UTF8.encode(line + "\n");
  const vector = StaticArray.fromArray<u32>([<u32>changetype<usize>(utf8), utf8.byteLength, 0]);
  fdWrite(1, changetype<usize>(vector), 1, changetype<usize>(vector) + 8);
}

/// Logs `why` and ends the guest with an error.
export function fail(why: string): void {
  log(why);
  stopHere();
  unreachable();
}

/// Called by the language when an assertion fails; `aici ctrl build` puts the function in place of an import.
export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  const what = message ? message : "abort";
  fail((file ? file : "") + ":" + line.toString() + ":" + column.toString() + ": " + what);
}

function giveBack(json: string): void {
  const utf8 = String.UTF8.encode(json);
  returnResult(changetype<usize>(utf8), utf8.byteLength);
}

/// The numbers of `key` in the argument of this callback: the runtime writes JSON without white space.
function numbers(key: string): u32[] {
  const json = String.UTF8.decode(readBlob(processArgBlob()));
  const start = json.indexOf('"' + key + '":');
  const found: u32[] = [];
  if (start < 0) return found;
  let value: u32 = 0;
  let inNumber = false;
  for (let at = start + key.length + 3; at < json.length; at++) {
    const code = json.charCodeAt(at);
    if (code >= 48 && code <= 57) {
      value = value * 10 + (code - 48);
      inNumber = true;
      continue;
    }
    if (inNumber) found.push(value);
    value = 0;
    inNumber = false;
    if (code == 93 || code == 125) break; // ] or }
    if (code == 44 && json.charCodeAt(start + key.length + 3) != 91) break; // a comma behind a single number
  }
  return found;
}

function jsonOf(tokens: Token[]): string {
  return "[" + tokens.join(",") + "]";
}

// The implementation of the exports; see the end of index.ts.

export function runInitPrompt(controller: Controller): void {
  controller.initPrompt(numbers("prompt"));
  giveBack("{}");
}

export function runPreProcess(controller: Controller): void {
  const result = controller.preProcess();
  const suspend = result.suspend ? "true" : "false";
  const head = '{"num_forks":' + result.numForks.toString() + ',"suspend":' + suspend;
  giveBack(head + ',"ff_tokens":' + jsonOf(result.ffTokens) + "}");
}

export function runMidProcess(controller: Controller): void {
  const result = controller.midProcess(numbers("fork_group"));
  const mask = result.mask;
  if (mask) {
    mask.giveBack();
    giveBack('{"SampleWithBias":{}}');
  } else if (result.backtrack == 0 && result.ffTokens.length == 0) {
    giveBack('"Stop"');
  } else {
    const head = '{"Splice":{"backtrack":' + result.backtrack.toString();
    giveBack(head + ',"ff_tokens":' + jsonOf(result.ffTokens) + "}}");
  }
}

export function runPostProcess(controller: Controller): void {
  const backtrack = numbers("backtrack");
  const stop = controller.postProcess(numbers("tokens"), backtrack.length > 0 ? backtrack[0] : 0);
  giveBack(stop ? '{"stop":true}' : '{"stop":false}');
}
