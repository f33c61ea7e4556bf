//! The answer is "yes" or "no", followed by a forced full stop.

#[allow(dead_code)]
mod aici;

use aici::{Mask, MidResult, PreResult, Token};

const WORDS: [&str; 2] = ["yes", "no"];

struct Answer {
    /// The tokens of every word that begins with the tokens so far.
    possible: Vec<(&'static str, Vec<Token>)>,
    num_taken: usize,
    is_answered: bool,
    mask: Mask,
}

impl Answer {
    fn new() -> Self {
        let possible = WORDS.iter().map(|word| (*word, aici::tokenize(word))).collect();
        Self { possible, num_taken: 0, is_answered: false, mask: Mask::new() }
    }
}

impl aici::Controller for Answer {
    /// Before each token: force text, wait, fork, stop or continue.
    fn pre_process(&mut self) -> PreResult {
        if self.is_answered {
            PreResult::force(aici::tokenize("."))
        } else {
            PreResult::go_on()
        }
    }

    /// While the model computes: which tokens may come next.
    fn mid_process(&mut self, _fork_group: &[u32]) -> MidResult<'_> {
        self.mask.clear();
        for (_, tokens) in &self.possible {
            self.mask.allow(tokens[self.num_taken]);
        }
        MidResult::Sample(&self.mask)
    }

    /// After each token, sampled or forced: whether to stop.
    fn post_process(&mut self, tokens: &[Token], _backtrack: u32) -> bool {
        if self.is_answered {
            return true;
        }
        for token in tokens {
            let at = self.num_taken;
            self.possible.retain(|(_, tokens)| tokens[at] == *token);
            self.num_taken += 1;
            if let Some((word, _)) = self.possible.iter().find(|(_, tokens)| tokens.len() == at + 1) {
                aici::log(&format!("the answer is {word}"));
                self.is_answered = true;
                break;
            }
        }
        false
    }
}

expose!(Answer, Answer::new());
