// Never returns from init_prompt.
#include "aici/controller.hpp"

struct LoopInit : aici::Controller {
  void init_prompt(aici::Tokens) override {
    for (volatile uint32_t n = 0;; n = n + 1) {}
  }
  aici::MidResult mid_process(aici::Tokens) override { return aici::MidResult::stop(); }
};
AICI_EXPOSE(LoopInit)
