// Never returns from mid_process.
#include "aici/controller.hpp"

struct LoopMid : aici::Controller {
  aici::MidResult mid_process(aici::Tokens) override {
    for (volatile uint32_t n = 0;; n = n + 1) {}
  }
};
AICI_EXPOSE(LoopMid)
