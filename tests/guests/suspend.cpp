// Waits for three steps, then allows everything.
#include "aici/controller.hpp"
#include "aici/trie.hpp"

struct Suspend : aici::Controller {
  int waits = 3;
  aici::TokenSet mask = aici::TokTrie::from_host().empty_set();
  Suspend() { mask.allow_all(); }
  aici::PreResult pre_process() override { return waits-- > 0 ? aici::PreResult::wait() : aici::PreResult::go_on(); }
  aici::MidResult mid_process(aici::Tokens) override { return aici::MidResult::sample(mask); }
};
AICI_EXPOSE(Suspend)
