// Allows every token at every step.
#include "aici/controller.hpp"
#include "aici/trie.hpp"

struct Anything : aici::Controller {
  aici::TokenSet mask = aici::TokTrie::from_host().empty_set();
  Anything() { mask.allow_all(); }
  aici::MidResult mid_process(aici::Tokens) override { return aici::MidResult::sample(mask); }
};
AICI_EXPOSE(Anything)
