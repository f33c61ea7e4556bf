// The sequence as seen by the program that controls it.
#pragma once
#include <string_view>
#include <vector>

#include "aici/script/steps.hpp"
#include "aici/trie.hpp"

namespace aici::script {

class Sequence {
 public:
  // Log levels: 1 logs results of steps, 2 also the steps, 3 every callback.
  int log_level = 1;

  Sequence() : trie_(TokTrie::from_host()) {}

  const TokTrie& trie() const { return trie_; }
  // The prompt and all tokens of the program's steps: forced text may still be on its way to the model.
  Tokens tokens() const { return tokens_; }
  size_t prompt_len() const { return prompt_len_; }

  // The step to wait for from now on. Returns false if the program already waits for another step.
  bool await(Step step);
  bool is_waiting() const { return !std::holds_alternative<std::monostate>(step_); }

  // A line for the log, if the level is enabled.
  void log(int level, std::string_view line) const;

 private:
  friend class ScriptController;

  TokTrie trie_;
  std::vector<TokenId> tokens_;
  size_t prompt_len_ = 0;
  Step step_;
};

}  // namespace aici::script
