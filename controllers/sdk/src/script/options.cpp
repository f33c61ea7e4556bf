#include "aici/script/constraints.hpp"

namespace aici::script {

namespace {

class OptionsConstraint final : public Constraint {
 public:
  OptionsConstraint(const TokTrie& trie, std::vector<std::vector<TokenId>> options)
      : eos_(trie.eos()), options_(static_cast<std::vector<std::vector<TokenId>>&&>(options)), mask_(trie.empty_set()) {}

  bool eos_allowed() override {
    for (const auto& option : options_)
      if (option.size() == depth_) return true;
    return false;
  }
  bool is_complete() override {
    for (const auto& option : options_)
      if (option.size() > depth_) return false;
    return !options_.empty();
  }
  const TokenSet& mask() override {
    mask_.clear();
    for (const auto& option : options_) mask_.allow(option.size() > depth_ ? option[depth_] : eos_);
    return mask_;
  }
  bool append(TokenId token) override {
    std::erase_if(options_, [&](const auto& option) { return option.size() <= depth_ || option[depth_] != token; });
    depth_++;
    return !options_.empty();
  }

 private:
  TokenId eos_;
  std::vector<std::vector<TokenId>> options_;  // options that begin with the accepted text
  size_t depth_ = 0;
  TokenSet mask_;
};

}  // namespace

MadeConstraint options_constraint(const TokTrie& trie, std::span<const Text> options) {
  std::vector<std::vector<TokenId>> tokens;
  for (const Text& option : options) tokens.push_back(tokenize(option));
  if (tokens.empty()) return {.problem = Text("options is empty: there must be one at least")};
  return {.constraint = std::make_unique<OptionsConstraint>(trie, static_cast<std::vector<std::vector<TokenId>>&&>(tokens))};
}

}  // namespace aici::script
