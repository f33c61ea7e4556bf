// The modules for scripts of the controller jsctrl: "aici" and "aici/helpers". All names of "aici" are also globals.

declare module "aici" {
  /** A token: its number in the model's vocabulary. */
  export type Token = number;

  // --- Steps. Await every step before the next begins.

  /** Append a template text without sampling. Values are formatted as by console.log, bytes as text. Adjacent forced
   * texts reach the model in one piece. Resolves to the tokens. */
  export function $(strings: TemplateStringsArray, ...values: unknown[]): Promise<Token[]>;

  /** Append text without sampling. Resolves to its tokens. */
  export function fixed(text: string): Promise<Token[]>;

  /** The options of gen: at most one of regex, yacc, jsonSchema, choices, options and substring. */
  export interface GenOptions {
    /** The whole text matches. Syntax: the controller regex. Of JavaScript's flags, i, m and s have an effect, u and v
     * are ignored, and any other flag is refused. */
    regex?: string | RegExp;
    /** The text is a sentence of this grammar. Syntax: the controller grammar (.y files). */
    yacc?: string;
    /** The text is JSON allowed by this schema: an object, true or false, or JSON text. */
    jsonSchema?: object | boolean | string;
    /** The text is one of these texts, in any tokens. */
    choices?: string[];
    /** The text is one of these texts, in the tokenizer's own tokens only. */
    options?: string[];
    /** The text is a run of words of this text, then substringEnd. */
    substring?: string;
    /** The end of a substring; default `"`. Empty: the substring may end after any word. */
    substringEnd?: string;
    /** Maximum number of tokens; default 20. The text is cut off there, whatever the constraint. */
    maxTokens?: number;
    /** No token may make the text longer than this many bytes of UTF-8; if no other token is left, the step ends. */
    maxBytes?: number;
    /** No token may begin a further word after this many; words end at a space, tab or newline. */
    maxWords?: number;
    /** End when the text contains this string, which stays in the text, as does the rest of its last token. */
    stopAt?: string;
    /** Also store the text in this variable. */
    storeVar?: string;
  }

  /** Let the model generate text, under a constraint if given. The step ends when the model ends the text, the
   * constraint is complete, stopAt is written, or maxTokens are reached. Resolves to the text. */
  export function gen(options?: GenOptions): Promise<string>;

  /** As gen, but resolves to the tokens; if the model ended the text, the last token is eosToken(). */
  export function genTokens(options?: GenOptions): Promise<Token[]>;

  /** Let one step of the other forks pass, without computing of the model. */
  export function pause(): Promise<void>;

  /** The tokens of the prompt. */
  export function getPrompt(): Promise<Token[]>;

  /** A position in the text: the end of the text when the label was made. */
  export class Label {
    /** The number of tokens before the label. */
    ptr: number;
    /** The tokens after the label. */
    tokensSince(): Token[];
    /** The text after the label. */
    textSince(): string;
    /** Remove everything after the label, then append text. Resolves to its tokens. */
    fixedAfter(text: string): Promise<Token[]>;
  }

  // --- Forks and variables

  /** Continue as several copies of the script. Every copy starts here with the same state and has its own text from now
   * on. Resolves to the index of the copy, from 0. With an array, every copy first takes its step from the array. */
  export function fork(forks: number | MidProcessResult[]): Promise<number>;

  /** Whether fork is available: always true. For scripts that check. */
  export function forkSupported(): boolean;

  /** 1 for "fork", "backtrack" and "ff_tokens", which are always available; 0 for any other name. */
  export function getConfig(name: string): number;

  /** Wait until all of these variables are set, usually by other forks. Resolves to the values. Waiting needs no
   * computing of the model. */
  export function waitVars(...names: string[]): Promise<Uint8Array[]>;

  /** The value of a variable, shared by all forks of a request; null if never set. */
  export function getVar(name: string): Uint8Array | null;
  export function setVar(name: string, value: string | Uint8Array): void;
  export function appendVar(name: string, value: string | Uint8Array): void;

  /** Throw unless the variable has this text. */
  export function checkVar(name: string, expected: string): void;
  /** The same for several variables. */
  export function checkVars(expected: Record<string, string>): void;

  // --- Tokens and text

  /** All tokens of the sequence so far, including the prompt. */
  export function getTokens(): Token[];
  /** The number of tokens in the prompt. */
  export function getPromptLen(): number;
  export function tokenize(text: string | Uint8Array): Token[];
  /** The bytes of tokens; .decode() converts the bytes to text. */
  export function detokenize(tokens: Token[]): Uint8Array;
  /** A token in readable form. */
  export function tokenRepr(token: Token): string;
  /** Tokens in readable form, with borders. */
  export function tokensRepr(tokens: Token[]): string;
  /** The token that ends a text. */
  export function eosToken(): Token;
  /** The number of this sequence, different in every run. */
  export function selfSeqId(): number;

  /** A set of tokens. */
  export class TokenSet {
    /** The size of the vocabulary. */
    readonly length: number;
    add(token: Token): this;
    /** Remove a token; returns whether the token was in the set. */
    delete(token: Token): boolean;
    has(token: Token): boolean;
    clear(): void;
    setAll(value: boolean): void;
    /** The number of tokens in the set. */
    numSet(): number;
    /** The first `most` tokens of the set; with isIn false, tokens outside the set. */
    toArray(most?: number, isIn?: boolean): Token[];
    toString(): string;
  }

  /** The set of all tokens, including special tokens of the model, which have no text. */
  export function allTokens(): TokenSet;

  // --- Constraints as objects, for programs that decide token by token

  /** Decides token by token what may follow. The base class allows any text, and the end at any time. */
  export class Constraint {
    /** May the text end here? */
    eosAllowed(): boolean;
    /** May the text end here, and can nothing follow? */
    eosForced(): boolean;
    tokenAllowed(token: Token): boolean;
    /** Accept a token, which must be allowed. */
    appendToken(token: Token): void;
    /** Add all tokens that may come next to the set, including eosToken() if the text may end. */
    allowTokens(set: TokenSet): void;
  }
  export function regexConstraint(regex: string | RegExp): Constraint;
  export function cfgConstraint(grammar: string): Constraint;
  export function jsonSchemaConstraint(schema: object | boolean | string): Constraint;
  export function choicesConstraint(choices: string[]): Constraint;
  export function substrConstraint(text: string, end?: string): Constraint;
  /** One of several texts, as with the option `options` of gen. */
  export class ChooseConstraint extends Constraint {
    constructor(options: string[]);
  }

  // --- Token by token

  /** The decision for a step. */
  export class MidProcessResult {
    private constructor();
    /** Sample a token of the set. */
    static bias(set: TokenSet): MidProcessResult;
    /** Remove `backtrack` tokens, then append `tokens`. */
    static splice(backtrack: number, tokens: Token[]): MidProcessResult;
    /** End the sequence. */
    static stop(): MidProcessResult;
    /** Do nothing in this step. */
    static noop(): MidProcessResult;
    /** End this NextToken before the step: the next action of the script decides about the step. */
    static skipMe(): MidProcessResult;
  }

  /** One step of the model. Subclasses decide which tokens are allowed, and see the result. */
  export class NextToken {
    /** Whether eosToken() was among the tokens; subclasses may set the field, too. */
    finished: boolean;
    /** The tokens of the last step. */
    currTokens: Token[] | null;
    /** Called while the model computes; returns the decision for the step. The default allows any text. forkGroup: the
     * sequences forked from a common parent. */
    midProcess(forkGroup?: number[]): MidProcessResult;
    /** Called after the step: `backtrack` tokens were removed, then `tokens` appended. */
    postProcess(backtrack: number, tokens: Token[]): void;
    /** Unused; for scripts that override the method. */
    isFixed(): boolean;
    /** Take one step. Resolves to the appended tokens. */
    run(): Promise<Token[]>;
  }

  /** Ends the sequence. */
  export class StopToken extends NextToken {}

  /** A step that appends text, after removing everything after the label. */
  export class FixedTokens extends NextToken {
    constructor(text: string, following?: Label | null);
  }

  /** A token allowed by a constraint, which is made on first use. `finished` is set when the constraint is complete. */
  export class ConstrainedToken extends NextToken {
    constructor(make: () => Constraint);
  }

  // --- Programs

  /** Run a function; the script ends when the function has ended. Scripts that await their steps at the top level need
   * no start. */
  export function start(main: () => Promise<void>): Promise<void>;
  /** As start, but logs TEST OK at the end. */
  export function test(main: () => Promise<void>): Promise<void>;

  export class AssertionError extends Error {}
  /** Throw an AssertionError unless the condition holds. */
  export function assert(condition: unknown, message?: string): asserts condition;
  /** End the request with this message; cannot be caught. */
  export function panic(message: unknown): never;

  // --- The log

  /** A value as text, formatted as by console.log: at most 20 elements, three levels deep. */
  export function inspect(value: unknown, depth?: number): string;
  /** 0: only the script's own lines. 1 (default): also the result of every step. 2: also the options of gen and
   * ConstrainedToken. */
  export function setLogLevel(level: number): void;
  export function logLevel(): number;

  /** Write a line to the request's log. */
  type Print = (...values: unknown[]) => void;
  export const console: { log: Print; info: Print; warn: Print; error: Print; debug: Print; trace: Print };
}

declare module "aici/helpers" {
  import type { GenOptions } from "aici";

  /** Generate one of the texts. */
  export function choose(...choices: string[] | [string[]]): Promise<string>;
  /** Generate a value allowed by the schema; throws if maxTokens (default 1000) are not enough. */
  export function json(schema: object | boolean | string, options?: Pick<GenOptions, "maxTokens" | "storeVar">): Promise<any>;
  /** Generate a whole number in this range. */
  export function integer(minimum: number, maximum: number): Promise<number>;
  /** Generate text up to the end of the line; the result has no spaces around it. After maxTokens (default 100) the
   * line end is forced. */
  export function line(options?: { maxTokens?: number }): Promise<string>;
  /** Write a numbered list: the numbers are forced, the lines generated. `first`: the first number. */
  export function list(length: number, options?: { first?: number; maxTokens?: number }): Promise<string[]>;
}

// The globals: all exports of "aici".

declare const $: typeof import("aici").$;
declare const fixed: typeof import("aici").fixed;
declare const gen: typeof import("aici").gen;
declare const genTokens: typeof import("aici").genTokens;
declare const pause: typeof import("aici").pause;
declare const getPrompt: typeof import("aici").getPrompt;
declare const Label: typeof import("aici").Label;
type Label = import("aici").Label;
declare const fork: typeof import("aici").fork;
declare const forkSupported: typeof import("aici").forkSupported;
declare const getConfig: typeof import("aici").getConfig;
declare const waitVars: typeof import("aici").waitVars;
declare const getVar: typeof import("aici").getVar;
declare const setVar: typeof import("aici").setVar;
declare const appendVar: typeof import("aici").appendVar;
declare const checkVar: typeof import("aici").checkVar;
declare const getTokens: typeof import("aici").getTokens;
declare const getPromptLen: typeof import("aici").getPromptLen;
declare const tokenize: typeof import("aici").tokenize;
declare const detokenize: typeof import("aici").detokenize;
declare const tokenRepr: typeof import("aici").tokenRepr;
declare const tokensRepr: typeof import("aici").tokensRepr;
declare const eosToken: typeof import("aici").eosToken;
declare const selfSeqId: typeof import("aici").selfSeqId;
declare const TokenSet: typeof import("aici").TokenSet;
type TokenSet = import("aici").TokenSet;
declare const allTokens: typeof import("aici").allTokens;
declare const Constraint: typeof import("aici").Constraint;
type Constraint = import("aici").Constraint;
declare const regexConstraint: typeof import("aici").regexConstraint;
declare const cfgConstraint: typeof import("aici").cfgConstraint;
declare const jsonSchemaConstraint: typeof import("aici").jsonSchemaConstraint;
declare const choicesConstraint: typeof import("aici").choicesConstraint;
declare const substrConstraint: typeof import("aici").substrConstraint;
declare const ChooseConstraint: typeof import("aici").ChooseConstraint;
type ChooseConstraint = import("aici").ChooseConstraint;
declare const MidProcessResult: typeof import("aici").MidProcessResult;
type MidProcessResult = import("aici").MidProcessResult;
declare const NextToken: typeof import("aici").NextToken;
type NextToken = import("aici").NextToken;
declare const StopToken: typeof import("aici").StopToken;
type StopToken = import("aici").StopToken;
declare const ConstrainedToken: typeof import("aici").ConstrainedToken;
type ConstrainedToken = import("aici").ConstrainedToken;
declare const start: typeof import("aici").start;
declare const test: typeof import("aici").test;
declare const AssertionError: typeof import("aici").AssertionError;
type AssertionError = import("aici").AssertionError;
declare const checkVars: typeof import("aici").checkVars;
declare const FixedTokens: typeof import("aici").FixedTokens;
type FixedTokens = import("aici").FixedTokens;
declare const assert: typeof import("aici").assert;
declare const panic: typeof import("aici").panic;
declare const inspect: typeof import("aici").inspect;
declare const setLogLevel: typeof import("aici").setLogLevel;
declare const logLevel: typeof import("aici").logLevel;
declare const console: typeof import("aici").console;

interface String {
  /** The text as UTF-8. */
  toBuffer(): Uint8Array;
}
interface StringConstructor {
  /** Decode UTF-8; invalid bytes become U+FFFD. */
  fromBuffer(bytes: Uint8Array): string;
}
interface Uint8Array {
  /** Decode UTF-8; invalid bytes become U+FFFD. */
  decode(): string;
}
