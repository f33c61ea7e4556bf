// A script in JavaScript, the argument, decides which text is generated.
#include <sys/time.h>
#include <time.h>

#include "aici/json.hpp"
#include "aici/script/controller.hpp"
#include "aici/tool.hpp"
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

namespace {

// {"script"} -> {"message"} of the error in the script's syntax, or {}. Nothing of the script runs.
aici::Text check(std::string_view question) {
  aici::Text script = *aici::json::unescaped(*aici::json::get(question, "script"));
  std::optional<aici::Text> problem = jsctrl::syntax_problem(script.view());
  if (!problem) return aici::Text("{}");
  aici::Text answer("{\"message\":");
  return answer << aici::json::quoted(problem->view()) << '}';
}

}  // namespace

AICI_EXPOSE_TOOL(check)

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
