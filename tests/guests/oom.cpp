// Allocates for ever in mid_process.
#include <cstring>

#include "aici/controller.hpp"

static char* volatile kept;  // else the compiler leaves the allocation out

struct Oom : aici::Controller {
  aici::MidResult mid_process(aici::Tokens) override {
    for (;;) memset((void*)(kept = new char[1 << 20]), 1, 1 << 20);
  }
};
AICI_EXPOSE(Oom)
