// The library of scripts, module "aici"; aici.d.ts describes it. All that it exports is there as a global, too.
import * as native from "aici/native";
import * as aici from "aici";

export const { TokenSet, Constraint } = native;
export const { getTokens, getPromptLen, detokenize, eosToken, selfSeqId, logLevel } = native;

// --- Errors

export class AssertionError extends Error {
  name = "AssertionError";
}

export function assert(condition, message = "") {
  if (!condition) throw new AssertionError(message || "the condition does not hold");
}

export function panic(message) {
  native.panic(inspect(message));
}

function need(holds, message) {
  if (!holds) throw new TypeError(message);
}

function needText(value, what) {
  need(typeof value === "string", `${what} must be a string, not ${inspect(value, 1)}`);
  return value;
}

function needBytes(value, what) {
  need(typeof value === "string" || value instanceof Uint8Array, `${what} must be a string or a Uint8Array`);
  return value;
}

function needCount(value, least, what) {
  need(Number.isInteger(value) && value >= least && value < 2 ** 31, `${what} must be a whole number, ${least} or more`);
  return value;
}

// --- Text, bytes and tokens

function define(object, name, value) {
  Object.defineProperty(object, name, { value, writable: true, configurable: true });
}

define(String.prototype, "toBuffer", function () {
  return native.encode(this);
});
define(String, "fromBuffer", (bytes) => native.decode(needBytes(bytes, "fromBuffer: its argument")));
define(Uint8Array.prototype, "decode", function () {
  return native.decode(this);
});

export function tokenize(text) {
  return native.tokenize(needBytes(text, "tokenize: its argument"));
}

function textOf(tokens) {
  return native.decode(native.detokenize(tokens));
}

// Text, or what is none in hexadecimal.
function bytesRepr(bytes, open = 'b"', close = '"') {
  const text = bytes.decode();
  if (!text.includes("\ufffd")) return open + JSON.stringify(text).slice(1, -1) + close;
  return `HEX[${bytes.reduce((hex, byte) => hex + byte.toString(16).padStart(2, "0"), "")}]`;
}

export function tokenRepr(token) {
  if (token === eosToken()) return "EOS";
  if (!(token < new TokenSet().length)) return `OOB[${token}]`;
  const bytes = detokenize([token]);
  return bytes.length === 0 ? `EMPTY[${token}]` : bytesRepr(bytes, '"');
}

export function tokensRepr(tokens) {
  const shown = tokens.map((token) => {
    const one = tokenRepr(token);
    return one.startsWith('"') ? one.slice(1, -1) : `≺${one}≻`;
  });
  return `"${shown.join("‧")}"`;
}

export function allTokens() {
  const all = new TokenSet();
  all.setAll(true);
  return all;
}

define(TokenSet.prototype, "toString", function () {
  const [num, all, most] = [this.numSet(), this.length, 50];
  const negated = (all - num) * 20 < num;
  const shown = this.toArray(most, !negated).map(tokenRepr);
  if ((negated ? all - num : num) > most) shown.push("...");
  return `TokenSet: ${num}/${all}; ${negated ? "ALL EXCEPT " : ""}${shown.join(", ")}`;
});

// --- Constraints

// JavaScript's flags that mean something for text as a whole.
const FLAGS = { i: "i", s: "s", m: "m", u: "", v: "" };

function patternOf(regex) {
  if (!(regex instanceof RegExp)) return needText(regex, "regex");
  const unknown = [...regex.flags].filter((flag) => !(flag in FLAGS));
  need(unknown.length === 0, `regex: the flag ${unknown[0]} has no meaning for text that is generated`);
  const flags = [...regex.flags].map((flag) => FLAGS[flag]).join("");
  return (flags && `(?${flags})`) + regex.source;
}

function schemaOf(schema) {
  const json = typeof schema === "string" ? schema : JSON.stringify(schema);
  need(json !== undefined, "jsonSchema must be a schema: an object, true or false, or its JSON");
  return json;
}

// What each option of gen is to the constructor of Constraint.
const KINDS = {
  regex: (regex) => ["regex", patternOf(regex)],
  yacc: (grammar) => ["grammar", needText(grammar, "yacc")],
  jsonSchema: (schema) => ["schema", schemaOf(schema)],
  choices: (choices) => ["choices", choices],
  options: (options) => ["options", options],
  substring: (text, end = '"') => ["substring", needText(text, "substring"), needText(end, "substringEnd")],
};
const OPTIONS = [...Object.keys(KINDS), "substringEnd", "maxTokens", "maxBytes", "maxWords", "stopAt", "storeVar"];

export const regexConstraint = (regex) => new Constraint(...KINDS.regex(regex));
export const cfgConstraint = (grammar) => new Constraint(...KINDS.yacc(grammar));
export const jsonSchemaConstraint = (schema) => new Constraint(...KINDS.jsonSchema(schema));
export const choicesConstraint = (choices) => new Constraint(...KINDS.choices(choices));
export const substrConstraint = (text, end) => new Constraint(...KINDS.substring(text, end));

export class ChooseConstraint extends Constraint {
  constructor(options) {
    super(...KINDS.options(options));
  }
}

// --- Steps

export function fixed(text) {
  return native.fixed(needText(text, "fixed: its argument"));
}

export function $(strings, ...values) {
  const shown = values.map((value) => (value instanceof Uint8Array ? value.decode() : inspect(value)));
  return fixed(strings.reduce((text, part, i) => text + shown[i - 1] + part));
}

export function genTokens(options = {}) {
  for (const name of Object.keys(options))
    need(OPTIONS.includes(name), `gen has no option ${name}; it has ${OPTIONS.join(", ")}`);
  const kinds = Object.keys(KINDS).filter((name) => options[name] !== undefined);
  need(kinds.length <= 1, `gen: ${kinds.join(" and ")} exclude each other`);
  const { maxTokens = 20, maxBytes, maxWords, stopAt = "", storeVar = "", substring, substringEnd } = options;
  need(substring !== undefined || substringEnd === undefined, "gen: substringEnd has no meaning without substring");
  const constraint = kinds.flatMap((name) => KINDS[name](options[name], substringEnd));
  if (logLevel() >= 2) print("GEN-OPT", options);
  needText(stopAt, "stopAt");
  needText(storeVar, "storeVar");
  const bound = (most, what) => (most === undefined ? 0 : needCount(most, 1, what));
  const bounds = [needCount(maxTokens, 1, "maxTokens"), bound(maxBytes, "maxBytes"), bound(maxWords, "maxWords")];
  return native.gen(...bounds, stopAt, storeVar, ...constraint);
}

export async function gen(options) {
  return textOf(await genTokens(options));
}

export function pause() {
  return native.pause();
}

export async function getPrompt() {
  return getTokens().slice(0, getPromptLen());
}

export class Label {
  ptr = native.getNumTokens();

  tokensSince() {
    assert(this.ptr <= native.getNumTokens(), "the place of the label was removed");
    return getTokens().slice(this.ptr);
  }
  textSince() {
    return textOf(this.tokensSince());
  }
  fixedAfter(text) {
    return native.fixed(needText(text, "fixedAfter: its argument"), this.ptr);
  }
}

// --- Token by token

export class MidProcessResult {
  constructor(kind, tokens, backtrack = 0) {
    Object.assign(this, { kind, tokens, backtrack });
  }
  static bias(set) {
    need(set instanceof TokenSet, "MidProcessResult.bias: its argument must be a TokenSet");
    return new MidProcessResult("bias", set);
  }
  static splice(backtrack, tokens) {
    return new MidProcessResult("splice", tokens, needCount(backtrack, 0, "backtrack"));
  }
  static stop() {
    return new MidProcessResult("stop");
  }
  static noop() {
    return new MidProcessResult("noop");
  }
  static skipMe() {
    return new MidProcessResult("skip");
  }
}

export class NextToken {
  finished = false;
  currTokens = null;

  midProcess(_forkGroup) {
    const anything = new TokenSet();
    new Constraint().allowTokens(anything);
    return MidProcessResult.bias(anything);
  }
  postProcess(_backtrack, _tokens) {}
  isFixed() {
    return false;
  }
  run() {
    return native.own(this);
  }
  _done(backtrack, tokens) {
    this.currTokens = tokens;
    this.finished = tokens.includes(eosToken());
    this.postProcess(backtrack, tokens);
  }
}

export class StopToken extends NextToken {
  midProcess() {
    return MidProcessResult.stop();
  }
}

export class FixedTokens extends NextToken {
  #text;
  #following;

  constructor(text, following = null) {
    super();
    this.#text = text;
    this.#following = following;
  }
  midProcess() {
    const backtrack = this.#following ? this.#following.tokensSince().length : 0;
    return MidProcessResult.splice(backtrack, tokenize(this.#text));
  }
}

export class ConstrainedToken extends NextToken {
  #make;
  #constraint;

  constructor(make) {
    super();
    this.#make = make;
  }
  midProcess() {
    this.#constraint ??= this.#make();
    const set = new TokenSet();
    this.#constraint.allowTokens(set);
    if (logLevel() >= 2) console.log(`ALLOW: ${set}`);
    if (set.numSet() === 0) {
      console.log("Constraint doesn't allow any tokens; adding EOS");
      set.add(eosToken());
    }
    return MidProcessResult.bias(set);
  }
  postProcess(_backtrack, tokens) {
    for (const token of tokens) this.#constraint.appendToken(token);
    if (this.#constraint.eosForced()) this.finished = true;
  }
}

// --- Forks and variables

export async function fork(forks) {
  if (!Array.isArray(forks)) return native.fork(needCount(forks, 1, "fork: the number of forks"));
  need(forks.length > 0 && forks.every((one) => one instanceof MidProcessResult), "fork: an array must hold what MidProcessResult makes");
  const index = await native.fork(forks.length);
  const first = new NextToken();
  first.midProcess = () => forks[index];
  await first.run();
  return index;
}

export function forkSupported() {
  return true;
}

export function getConfig(name) {
  return ["fork", "backtrack", "ff_tokens"].includes(name) ? 1 : 0;
}

export async function waitVars(...names) {
  if (names.length === 0) return [];
  return native.waitVars(names.map((name) => needText(name, "waitVars: a name")));
}

export function getVar(name) {
  return native.getVar(needText(name, "getVar: the name"));
}

export function setVar(name, value) {
  native.setVar(needText(name, "setVar: the name"), needBytes(value, "setVar: the value"));
}

export function appendVar(name, value) {
  native.appendVar(needText(name, "appendVar: the name"), needBytes(value, "appendVar: the value"));
}

export function checkVar(name, expected) {
  const value = getVar(name)?.decode();
  assert(value === expected, `the variable ${name} is ${inspect(value, 1)}, not ${inspect(expected, 1)}`);
}

export function checkVars(expected) {
  for (const [name, value] of Object.entries(expected)) checkVar(name, value);
}

// --- Programs

async function finish(main, last) {
  need(typeof main === "function", "start and test take an async function");
  await main();
  native.print(last);
}

export function start(main) {
  return native.keepAlive(finish(main, "JsCtrl: done"));
}

export function test(main) {
  return native.keepAlive(finish(main, "TEST OK"));
}

// --- The log

const [MOST_ELEMENTS, MOST_DEPTH, MOST_CHARS] = [20, 2, 200];

export function inspect(value, depth = 0) {
  if (typeof value === "string") {
    if (depth === 0) return value;
    return JSON.stringify(value.length > MOST_CHARS ? value.slice(0, MOST_CHARS) + "..." : value);
  }
  if (typeof value === "function") return `[Function: ${value.name || "(anonymous)"}]`;
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value !== "object" || value === null) return String(value);
  if (value instanceof Error) return `${value.name}: ${value.message}`;
  if (value instanceof RegExp || value instanceof TokenSet) return String(value);
  if (value instanceof Date) return isNaN(value) ? "Invalid Date" : value.toISOString();
  if (depth > MOST_DEPTH) return "[...]";
  const inner = (one) => inspect(one, depth + 1);
  if (value instanceof Map) return listed("Map {", [...value].map(([key, one]) => `${inner(key)} => ${inner(one)}`), "}");
  if (value instanceof Set) return listed("Set {", [...value].map(inner), "}");
  if (value instanceof Uint8Array) return bytesRepr(value);
  if (ArrayBuffer.isView(value)) return listed(`${value.constructor.name} [`, [...value.slice?.(0, MOST_ELEMENTS + 1) ?? []].map(inner), "]");
  if (Array.isArray(value)) return listed("[", value.slice(0, MOST_ELEMENTS + 1).map(inner), "]");
  const name = value.constructor === Object || !value.constructor ? "" : `${value.constructor.name} `;
  return listed(`${name}{`, Object.entries(value).map(([key, one]) => `${key}: ${inner(one)}`), "}");
}

function listed(open, parts, close) {
  const more = parts.length > MOST_ELEMENTS ? ["..."] : [];
  return `${open}${[...parts.slice(0, MOST_ELEMENTS), ...more].join(", ")}${close}`;
}

export function setLogLevel(level) {
  native.setLogLevel(needCount(level, 0, "the log level"));
}

function print(...values) {
  native.print(values.map((value) => inspect(value)).join(" "));
}

export const console = { log: print, info: print, warn: print, error: print, debug: print, trace: print };

Object.assign(globalThis, aici);
