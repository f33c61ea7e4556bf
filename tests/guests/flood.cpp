// Writes 200 KB to its log at every step, in numbered lines, and allows everything.
#include "aici/controller.hpp"
#include "aici/trie.hpp"

struct Flood : aici::Controller {
  aici::TokenSet mask = aici::TokTrie::from_host().empty_set();
  Flood() { mask.allow_all(); }
  aici::MidResult mid_process(aici::Tokens) override {
    for (uint32_t line = 10000; line < 30000; line++) aici::print((aici::Text("l ") << line << " \n").view());
    return aici::MidResult::sample(mask);
  }
};
AICI_EXPOSE(Flood)
