// What scripts of the controller jsctrl can use: the modules "aici" and "aici/helpers". All of "aici" is there without an
// import, too.

declare module "aici" {
  /** A token is its number in the model's vocabulary. */
  export type Token = number;

  // --- Steps. Each is awaited before the next begins.

  /** Appends text, as a template. Values are shown as console.log shows them, bytes
   * as text. The text goes to the model in one piece with
   * what is forced after it; nothing is sampled. Gives the tokens. */
  export function $(strings: TemplateStringsArray, ...values: unknown[]): Promise<Token[]>;

  /** Appends text. Gives its tokens. */
  export function fixed(text: string): Promise<Token[]>;

  /** What gen is told. At most one of regex, yacc, jsonSchema, choices, options and substring. */
  export interface GenOptions {
    /** The text matches this as a whole. The syntax is that of the controller regex; of JavaScript's flags, i, m and s
     * count, u and v change nothing, and others are refused. */
    regex?: string | RegExp;
    /** The text is in the language of this grammar, in the syntax of the controller grammar (.y files). */
    yacc?: string;
    /** The text is JSON that this schema allows: an object, true or false, or JSON text. */
    jsonSchema?: object | boolean | string;
    /** The text is one of these, in whatever tokens. */
    choices?: string[];
    /** The text is one of these, in the tokens that the tokenizer makes of it, and no others. */
    options?: string[];
    /** The text is some words of this text, then substringEnd. */
    substring?: string;
    /** What ends a substring; `"` unless told. The empty text: it may end after each word. */
    substringEnd?: string;
    /** So many tokens at most; 20 unless told. The text is cut off there, whatever the constraint. */
    maxTokens?: number;
    /** No token makes the text longer than so many bytes of UTF-8: where no other may come, it ends. */
    maxBytes?: number;
    /** No token begins a word beyond so many; words end at a space, tab or newline. */
    maxWords?: number;
    /** Ends where the text has this in it; it is part of the text, as is the rest of its last token. */
    stopAt?: string;
    /** The text is put into this variable, too. */
    storeVar?: string;
  }

  /** The model writes, under a constraint if one is given, until the model ends the text, the constraint is complete,
   * stopAt was written or maxTokens are reached. Gives the text. */
  export function gen(options?: GenOptions): Promise<string>;

  /** As gen. Gives the tokens; if the model ended the text, the last one is eosToken(). */
  export function genTokens(options?: GenOptions): Promise<Token[]>;

  /** Lets one step of the other forks pass. It costs no computing of the model. */
  export function pause(): Promise<void>;

  /** The tokens of the prompt. */
  export function getPrompt(): Promise<Token[]>;

  /** A place in the text: where it was made. */
  export class Label {
    /** How many tokens are before it. */
    ptr: number;
    /** The tokens from here on. */
    tokensSince(): Token[];
    /** The text from here on. */
    textSince(): string;
    /** Takes back all from here on, then appends text. Gives its tokens. */
    fixedAfter(text: string): Promise<Token[]>;
  }

  // --- Forks and variables

  /** The script goes on so many times, each from here with all that it knows, and each has a text of its own. Gives the
   * number of this one, from 0. With an array, each first takes the step that the array has for it. */
  export function fork(forks: number | MidProcessResult[]): Promise<number>;

  /** Whether fork can be used: always. Here for scripts that ask. */
  export function forkSupported(): boolean;

  /** 1 for "fork", "backtrack" and "ff_tokens", which are always there; 0 for anything else. */
  export function getConfig(name: string): number;

  /** Waits until all of these variables are set, by other forks as a rule, and gives their values. Waiting costs no
   * computing of the model. */
  export function waitVars(...names: string[]): Promise<Uint8Array[]>;

  /** The value of a variable, which all forks of a request share; null if it was never set. */
  export function getVar(name: string): Uint8Array | null;
  export function setVar(name: string, value: string | Uint8Array): void;
  export function appendVar(name: string, value: string | Uint8Array): void;

  /** Throws unless the variable has this text. */
  export function checkVar(name: string, expected: string): void;
  /** The same for several variables. */
  export function checkVars(expected: Record<string, string>): void;

  // --- Tokens and text

  /** All tokens of the sequence so far: the prompt, and what was appended. */
  export function getTokens(): Token[];
  /** How many of them are the prompt. */
  export function getPromptLen(): number;
  export function tokenize(text: string | Uint8Array): Token[];
  /** The bytes of tokens; .decode() makes text of them. */
  export function detokenize(tokens: Token[]): Uint8Array;
  /** One token, to be read by people. */
  export function tokenRepr(token: Token): string;
  /** Tokens with their borders, to be read by people. */
  export function tokensRepr(tokens: Token[]): string;
  /** The token that ends a text. */
  export function eosToken(): Token;
  /** The number of this sequence. It is another one in each run. */
  export function selfSeqId(): number;

  /** A set of tokens. */
  export class TokenSet {
    /** The size of the vocabulary. */
    readonly length: number;
    add(token: Token): this;
    /** Whether it was there. */
    delete(token: Token): boolean;
    has(token: Token): boolean;
    clear(): void;
    setAll(value: boolean): void;
    /** How many tokens are in it. */
    numSet(): number;
    /** The tokens in it, the first so many; with isIn false, those that are not in it. */
    toArray(most?: number, isIn?: boolean): Token[];
    toString(): string;
  }

  /** A set with all tokens in it, those of the model's own markup among them, which are no text. */
  export function allTokens(): TokenSet;

  // --- Constraints as objects, for programs that decide token by token

  /** What may follow, token after token. The base class allows any text, and its end. */
  export class Constraint {
    /** May the text end here? */
    eosAllowed(): boolean;
    /** May the text end here, and can nothing follow? */
    eosForced(): boolean;
    tokenAllowed(token: Token): boolean;
    /** Takes a token, which must be allowed. */
    appendToken(token: Token): void;
    /** Adds all tokens that may come next to the set; eosToken() is among them if the text may end. */
    allowTokens(set: TokenSet): void;
  }
  export function regexConstraint(regex: string | RegExp): Constraint;
  export function cfgConstraint(grammar: string): Constraint;
  export function jsonSchemaConstraint(schema: object | boolean | string): Constraint;
  export function choicesConstraint(choices: string[]): Constraint;
  export function substrConstraint(text: string, end?: string): Constraint;
  /** One of some texts, as the option `options` of gen. */
  export class ChooseConstraint extends Constraint {
    constructor(options: string[]);
  }

  // --- Token by token

  /** What is to happen in a step. */
  export class MidProcessResult {
    private constructor();
    /** One token of the set is sampled. */
    static bias(set: TokenSet): MidProcessResult;
    /** So many tokens are taken back, then these appended. */
    static splice(backtrack: number, tokens: Token[]): MidProcessResult;
    /** The sequence ends. */
    static stop(): MidProcessResult;
    /** Nothing, in this step. */
    static noop(): MidProcessResult;
    /** This NextToken is done with, before the step: what the script does next decides about it. */
    static skipMe(): MidProcessResult;
  }

  /** One step of the model. Subclasses say what is allowed, and see what came. */
  export class NextToken {
    /** Whether eosToken() was among the tokens; subclasses may set it, too. */
    finished: boolean;
    /** What came of the last step. */
    currTokens: Token[] | null;
    /** Called while the model computes: what is to happen? Any text, unless overridden. forkGroup: the sequences that
     * were forked from one. */
    midProcess(forkGroup?: number[]): MidProcessResult;
    /** Called afterwards: so many tokens were taken back, then these appended. */
    postProcess(backtrack: number, tokens: Token[]): void;
    /** Nothing depends on it. Here for scripts that override it. */
    isFixed(): boolean;
    /** Takes one step, and gives the tokens that were appended. */
    run(): Promise<Token[]>;
  }

  /** Ends the sequence. */
  export class StopToken extends NextToken {}

  /** The step that appends text, after taking back what follows the label. */
  export class FixedTokens extends NextToken {
    constructor(text: string, following?: Label | null);
  }

  /** A token that a constraint allows; the constraint is made when it is needed. `finished` when it is complete. */
  export class ConstrainedToken extends NextToken {
    constructor(make: () => Constraint);
  }

  // --- Programs

  /** Runs a function; the script has not ended before that has. A script that awaits its steps itself needs no start. */
  export function start(main: () => Promise<void>): Promise<void>;
  /** As start; logs TEST OK at the end. */
  export function test(main: () => Promise<void>): Promise<void>;

  export class AssertionError extends Error {}
  /** Throws an AssertionError unless the condition holds. */
  export function assert(condition: unknown, message?: string): asserts condition;
  /** Ends the request with this message, whoever would catch an exception. */
  export function panic(message: unknown): never;

  // --- The log

  /** A value as text, as console.log shows it: 20 elements at most, three levels deep. */
  export function inspect(value: unknown, depth?: number): string;
  /** 0: only what the script logs. 1, the default: what came of each step. 2: what gen and ConstrainedToken were told, too. */
  export function setLogLevel(level: number): void;
  export function logLevel(): number;

  /** Writes a line to the request's log. */
  type Print = (...values: unknown[]) => void;
  export const console: { log: Print; info: Print; warn: Print; error: Print; debug: Print; trace: Print };
}

declare module "aici/helpers" {
  import type { GenOptions } from "aici";

  /** One of the texts. */
  export function choose(...choices: string[] | [string[]]): Promise<string>;
  /** A value that the schema allows; an exception if maxTokens (1000 unless told) are not enough for it. */
  export function json(schema: object | boolean | string, options?: Pick<GenOptions, "maxTokens" | "storeVar">): Promise<any>;
  /** A whole number in this range. */
  export function integer(minimum: number, maximum: number): Promise<number>;
  /** Text up to the end of the line, without spaces around it. The line is ended, by force after maxTokens (100 unless
   * told). */
  export function line(options?: { maxTokens?: number }): Promise<string>;
  /** A numbered list of so many lines: numbers are written, lines generated. `first` is the first number. */
  export function list(length: number, options?: { first?: number; maxTokens?: number }): Promise<string[]>;
}

// The globals: all that "aici" exports.

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
  /** As UTF-8. */
  toBuffer(): Uint8Array;
}
interface StringConstructor {
  /** Of UTF-8; what is none becomes U+FFFD. */
  fromBuffer(bytes: Uint8Array): string;
}
interface Uint8Array {
  /** Of UTF-8; what is none becomes U+FFFD. */
  decode(): string;
}
