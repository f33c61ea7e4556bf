// Stops before the first token.
#include "aici/controller.hpp"

struct StopFirst : aici::Controller {
  aici::PreResult pre_process() override { return aici::PreResult::stop(); }
  aici::MidResult mid_process(aici::Tokens) override { return aici::MidResult::stop(); }
};
AICI_EXPOSE(StopFirst)
