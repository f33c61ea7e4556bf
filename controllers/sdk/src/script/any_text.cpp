#include "aici/script/constraints.hpp"

namespace aici::script {

namespace {

class AnyTextConstraint final : public Constraint {
 public:
  explicit AnyTextConstraint(const TokTrie& trie) : mask_(trie.empty_set()) {
    for (TokenId token = 0; token < trie.vocab_size(); token++)
      if (token == trie.eos() || !trie.token(token).empty()) mask_.allow(token);
  }
  bool eos_allowed() override { return true; }
  bool is_complete() override { return false; }
  const TokenSet& mask() override { return mask_; }
  bool append(TokenId) override { return true; }

 private:
  TokenSet mask_;
};

}  // namespace

std::unique_ptr<Constraint> any_text(const TokTrie& trie) { return std::make_unique<AnyTextConstraint>(trie); }

}  // namespace aici::script
