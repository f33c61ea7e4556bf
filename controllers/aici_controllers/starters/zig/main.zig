//! The answer is "yes" or "no", followed by a forced full stop.
const std = @import("std");
const aici = @import("aici");

pub const panic = aici.panic;

const words = [_][]const u8{ "yes", "no" };

const Answer = struct {
    /// The tokens of each word, and whether the word begins with the tokens so far.
    tokens: [words.len][]const aici.Token,
    possible: [words.len]bool = @splat(true),
    full_stop: []const aici.Token,
    num_taken: usize = 0,
    is_answered: bool = false,
    mask: aici.Mask,

    pub fn init() Answer {
        var self: Answer = .{ .tokens = undefined, .full_stop = aici.tokenize("."), .mask = aici.Mask.init() };
        for (words, &self.tokens) |word, *tokens| tokens.* = aici.tokenize(word);
        return self;
    }

    /// Before each token: force text, wait, fork, stop or continue.
    pub fn preProcess(self: *Answer) aici.PreResult {
        return if (self.is_answered) .{ .ff_tokens = self.full_stop } else .{};
    }

    /// While the model computes: which tokens may come next.
    pub fn midProcess(self: *Answer, _: []const u32) aici.MidResult {
        self.mask.clear();
        for (self.tokens, self.possible) |tokens, possible| {
            if (possible) self.mask.allow(tokens[self.num_taken]);
        }
        return .{ .sample = &self.mask };
    }

    /// After each token, sampled or forced: whether to stop.
    pub fn postProcess(self: *Answer, tokens: []const aici.Token, _: u32) bool {
        if (self.is_answered) return true;
        for (tokens) |token| {
            for (words, self.tokens, &self.possible) |word, expected, *possible| {
                if (!possible.*) continue;
                possible.* = expected[self.num_taken] == token;
                if (possible.* and self.num_taken + 1 == expected.len) {
                    self.is_answered = true;
                    aici.print("the answer is {s}\n", .{word});
                }
            }
            self.num_taken += 1;
            if (self.is_answered) break;
        }
        return false;
    }
};

comptime {
    aici.expose(Answer);
}
