// The steps that a program may wait for, one at a time, and their outcomes.
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

// Remove all but the first `keep` tokens of the sequence, then append these tokens. Outcome: the tokens.
struct Fixed {
  std::vector<TokenId> tokens{};
  std::optional<size_t> keep{};
};

// Sample tokens, or append tokens if the constraint leaves no choice. The step ends with EOS, which is part of the
// outcome; when the constraint is complete; when the text contains `stop_at`; or after `max_tokens`. A token that would
// make the text longer than `max_bytes`, or begin a word beyond `max_words` (words end at a space, tab or newline), is
// never sampled; if no other token is left, the step ends. The text is written to `variable`, if named. Outcome: the
// tokens.
struct Gen {
  static constexpr uint32_t DEFAULT_MAX_TOKENS = 20;

  std::unique_ptr<Constraint> constraint{};  // null: anything
  uint32_t max_tokens = DEFAULT_MAX_TOKENS;
  std::optional<uint32_t> max_bytes{};
  std::optional<uint32_t> max_words{};
  Text stop_at{};
  Text variable{};
};

// Continue as `num` copies of the program, including this one. Outcome: the index of this copy, from 0.
struct Fork {
  uint32_t num = 1;
};

// Wait until all of these variables are set, usually by another fork. Outcome: the values.
struct Wait {
  std::vector<Text> names{};
};

// Let one step of the other forks pass.
struct Pause {};

// The program decides token by token (Program::own_step) until it ends the step. Outcome: none.
struct Own {};

using Step = std::variant<std::monostate, Fixed, Gen, Fork, Wait, Pause, Own>;

struct Outcome {
  std::vector<TokenId> tokens{};
  uint32_t fork = 0;
  std::vector<Text> values{};
};

}  // namespace aici::script
