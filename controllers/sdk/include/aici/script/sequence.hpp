// What a program sees of the sequence that it controls.
#pragma once
#include <string_view>
#include <vector>

#include "aici/script/steps.hpp"
#include "aici/trie.hpp"

namespace aici::script {

class Sequence {
 public:
  // From when on something is logged: 1 is what came of steps, 2 what they were to do, 3 every callback.
  int log_level = 1;

  Sequence() : trie_(TokTrie::from_host()) {}

  const TokTrie& trie() const { return trie_; }
  // The prompt, and all that came of the program's steps: what was forced may still be on its way to the model.
  Tokens tokens() const { return tokens_; }
  size_t prompt_len() const { return prompt_len_; }

  // What the program waits for from now on. False when it waits for something else already.
  bool await(Step step);
  bool is_waiting() const { return !std::holds_alternative<std::monostate>(step_); }

  // A line of the log, if such lines are wanted.
  void log(int level, std::string_view line) const;

 private:
  friend class ScriptController;

  TokTrie trie_;
  std::vector<TokenId> tokens_;
  size_t prompt_len_ = 0;
  Step step_;
};

}  // namespace aici::script
