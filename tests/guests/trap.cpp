// Traps in mid_process, after a line in its log.
#include "aici/controller.hpp"

struct Trap : aici::Controller {
  aici::MidResult mid_process(aici::Tokens) override {
    aici::print("about to trap\n");
    __builtin_trap();
  }
};
AICI_EXPOSE(Trap)
