// Forces the text of the module argument through pre_process, then stops.
#include "aici/controller.hpp"

struct Forced : aici::Controller {
  bool done = false;
  aici::PreResult pre_process() override {
    if (done) return aici::PreResult::stop();
    std::vector<char> text = aici::module_arg();
    return aici::PreResult::force(aici::tokenize({text.data(), text.size()}));
  }
  aici::MidResult mid_process(aici::Tokens) override { return aici::MidResult::stop(); }
  bool post_process(aici::Tokens, uint32_t) override { return done = true; }
};
AICI_EXPOSE(Forced)
