// What a program may wait for, one thing at a time, and what it gets.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "aici/constraint.hpp"
#include "aici/host.hpp"
#include "aici/text.hpp"

namespace aici::script {

// These tokens are appended, after all but the first `keep` tokens of the sequence were removed. Outcome: the tokens.
struct Fixed {
  std::vector<TokenId> tokens{};
  std::optional<size_t> keep{};
};

// Tokens are sampled, or appended where the constraint leaves no choice, until EOS, which is one of them; until the constraint is complete; until their text has `stop_at` in
// it; or until there are `max_tokens`. No token is sampled that would make the text longer than `max_bytes`, or that begins
// a word beyond `max_words` (words end at a space, tab or newline): where no other may come, it is over. Their text goes
// to `variable`, if that has a name. Outcome: the tokens.
struct Gen {
  static constexpr uint32_t DEFAULT_MAX_TOKENS = 20;

  std::unique_ptr<Constraint> constraint{};  // null: anything
  uint32_t max_tokens = DEFAULT_MAX_TOKENS;
  std::optional<uint32_t> max_bytes{};
  std::optional<uint32_t> max_words{};
  Text stop_at{};
  Text variable{};
};

// `num` copies of the program go on, this one among them. Outcome: which of them this is, from 0.
struct Fork {
  uint32_t num = 1;
};

// All of these variables are set, by another fork as a rule. Outcome: their values.
struct Wait {
  std::vector<Text> names{};
};

// One step passes for the others.
struct Pause {};

// The program decides token by token (Program::own_step), until it says that this is over. Outcome: none.
struct Own {};

using Step = std::variant<std::monostate, Fixed, Gen, Fork, Wait, Pause, Own>;

struct Outcome {
  std::vector<TokenId> tokens{};
  uint32_t fork = 0;
  std::vector<Text> values{};
};

}  // namespace aici::script
