// A script in JavaScript, the argument, decides which text is generated.
#include <sys/time.h>
#include <time.h>

#include "aici/script/controller.hpp"
#include "program.hpp"

namespace {

struct JsController : aici::script::ScriptController {
  JsController()
      : ScriptController([](aici::script::Sequence& sequence) -> std::unique_ptr<aici::script::Program> {
          return std::make_unique<jsctrl::JsProgram>(sequence);
        }) {}
};

}  // namespace

AICI_EXPOSE(JsController)

extern "C" {
// A guest has no clock: time stands still, so that a script does the same each time.
int gettimeofday(timeval* time, void*) {
  *time = {};
  return 0;
}
int clock_gettime(clockid_t, timespec* time) {
  *time = {};
  return 0;
}
}
