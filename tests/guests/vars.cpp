// Writes and reads variables, logs what it reads, stops. Logs: "missing", "x=one", "x=one, two", "bytes ok".
#include "aici/controller.hpp"
#include "aici/variables.hpp"

struct Vars : aici::Controller {
  aici::MidResult mid_process(aici::Tokens) override {
    aici::print(aici::get_variable("none") ? "there\n" : "missing\n");
    aici::set_variable("x", "one");
    show();
    aici::append_variable("x", ", two");
    show();
    std::string_view bytes("\0\xFF\"", 3);
    aici::set_variable("a \"b\"", bytes);
    aici::print(aici::get_variable("a \"b\"")->view() == bytes ? "bytes ok\n" : "bytes lost\n");
    return aici::MidResult::stop();
  }
  void show() { aici::print((aici::Text("x=") << aici::get_variable("x")->view() << "\n").view()); }
};
AICI_EXPOSE(Vars)
