// Forces its argument "text": first as a splice without backtracking; then samples a token, removes the token and
// appends the text in its place; then stops.
#include "aici/controller.hpp"
#include "aici/trie.hpp"

struct Splice : aici::Controller {
  int step = 0;
  aici::TokenSet mask = aici::TokTrie::from_host().empty_set();
  std::vector<char> arg = aici::module_arg();
  std::vector<aici::TokenId> text = aici::tokenize({arg.data(), arg.size()});
  Splice() { mask.allow_all(); }
  aici::MidResult mid_process(aici::Tokens) override {
    switch (step++) {
      case 0: return aici::MidResult::splice(0, text);
      case 1: return aici::MidResult::sample(mask);
      case 2: return aici::MidResult::splice(1, text);
      default: return aici::MidResult::stop();
    }
  }
};
AICI_EXPOSE(Splice)
