// The answer is "yes" or "no", followed by a forced full stop.
import * as aici from "./aici";

const WORDS: string[] = ["yes", "no"];

class Answer extends aici.Controller {
  /// The tokens of each word, and whether the word begins with the tokens so far.
  private tokens: aici.Token[][] = [];
  private possible: bool[] = [];
  private numTaken: i32 = 0;
  private isAnswered: bool = false;
  private mask: aici.Mask = new aici.Mask();

  constructor() {
    super();
    for (let i = 0; i < WORDS.length; i++) {
      this.tokens.push(aici.tokenize(WORDS[i]));
      this.possible.push(true);
    }
  }

  /// Before each token: force text, wait, fork, stop or continue.
  preProcess(): aici.PreResult {
    return this.isAnswered ? new aici.PreResult(aici.tokenize(".")) : new aici.PreResult();
  }

  /// While the model computes: which tokens may come next.
  midProcess(_forkGroup: u32[]): aici.MidResult {
    this.mask.clear();
    for (let i = 0; i < WORDS.length; i++) {
      if (this.possible[i]) this.mask.allow(this.tokens[i][this.numTaken]);
    }
    return new aici.MidResult(this.mask);
  }

  /// After each token, sampled or forced: whether to stop.
  postProcess(tokens: aici.Token[], _backtrack: u32): bool {
    if (this.isAnswered) return true;
    for (let t = 0; t < tokens.length && !this.isAnswered; t++, this.numTaken++) {
      for (let i = 0; i < WORDS.length; i++) {
        if (!this.possible[i]) continue;
        this.possible[i] = this.tokens[i][this.numTaken] == tokens[t];
        if (this.possible[i] && this.numTaken + 1 == this.tokens[i].length) {
          this.isAnswered = true;
          aici.log("the answer is " + WORDS[i]);
        }
      }
    }
    return false;
  }
}

// The exports of the interface. An instance serves one sequence, so there is a single controller.
let controller: aici.Controller | null = null;

export function aici_init(): void {}
export function aici_create(): u32 {
  controller = new Answer();
  return 0;
}
export function aici_init_prompt(_self: u32): void {
  aici.runInitPrompt(controller!);
}
export function aici_pre_process(_self: u32): void {
  aici.runPreProcess(controller!);
}
export function aici_mid_process(_self: u32): void {
  aici.runMidProcess(controller!);
}
export function aici_post_process(_self: u32): void {
  aici.runPostProcess(controller!);
}
