// Forks once into two guests, which allow everything afterwards. Each guest logs its place in the fork group.
#include "aici/controller.hpp"
#include "aici/trie.hpp"

struct Fork : aici::Controller {
  bool forked = false;
  aici::TokenSet mask = aici::TokTrie::from_host().empty_set();
  Fork() { mask.allow_all(); }
  aici::PreResult pre_process() override {
    if (forked) return aici::PreResult::go_on();
    forked = true;
    return aici::PreResult::fork(2);
  }
  aici::MidResult mid_process(aici::Tokens group) override {
    if (group.size() > 1) aici::print((aici::Text("fork ") << aici::self_seq_id() << " of " << group.size() << "\n").view());
    return aici::MidResult::sample(mask);
  }
};
AICI_EXPOSE(Fork)
