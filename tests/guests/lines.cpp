// Does what its argument says, a command a line, by the script core:
//     fixed TEXT    gen REGEX    free N (tokens)    fork N    wait NAME    set NAME VALUE    log TEXT    trap    spin
// "2:fixed TEXT" is for fork 2 of the last fork alone.
#include "aici/script/constraints.hpp"
#include "aici/script/controller.hpp"
#include "aici/variables.hpp"

using namespace aici::script;

struct Lines : Program {
  explicit Lines(Sequence& sequence) : sequence_(sequence) {}
  void start() override { run(); }
  void resume(const Outcome& outcome) override {
    if (is_forking_) fork_ = outcome.fork;
    is_forking_ = false;
    run();
  }
  OwnStep own_step(aici::Tokens) override { return {}; }
  bool own_done(uint32_t, aici::Tokens) override { return true; }

 private:
  void run() {
    while (!sequence_.is_waiting() && !rest_.empty()) {
      size_t end = rest_.find('\n');
      std::string_view line = rest_.substr(0, end);
      rest_ = end == std::string_view::npos ? "" : rest_.substr(end + 1);
      if (line.size() > 1 && line[1] == ':') {
        if (line[0] != static_cast<char>('0' + fork_)) continue;
        line.remove_prefix(2);
      }
      size_t space = line.find(' ');
      obey(line.substr(0, space), space == std::string_view::npos ? "" : line.substr(space + 1));
    }
  }

  void obey(std::string_view command, std::string_view rest) {
    if (command == "fixed") sequence_.await(Fixed{aici::tokenize(rest)});
    else if (command == "gen") gen(regex_constraint(sequence_.trie(), rest).constraint, 200);
    else if (command == "free") gen(nullptr, number(rest));
    else if (command == "wait") wait(rest);
    else if (command == "set") aici::set_variable(rest.substr(0, rest.find(' ')), rest.substr(rest.find(' ') + 1));
    else if (command == "log") aici::print((aici::Text(rest) << '\n').view());
    else if (command == "trap") __builtin_trap();
    else if (command == "fork") is_forking_ = sequence_.await(Fork{number(rest)});
    else if (command == "spin") for (volatile int turn = 0;; turn = turn + 1) {}
    else aici::fail(command);
  }

  void gen(std::unique_ptr<aici::Constraint> constraint, uint32_t max_tokens) {
    Gen step;
    step.constraint = static_cast<std::unique_ptr<aici::Constraint>&&>(constraint);
    step.max_tokens = max_tokens;
    sequence_.await(static_cast<Gen&&>(step));
  }

  void wait(std::string_view name) {
    Wait step;
    step.names.push_back(aici::Text(name));
    sequence_.await(static_cast<Wait&&>(step));
  }

  static uint32_t number(std::string_view digits) {
    uint32_t value = 0;
    for (char digit : digits) value = value * 10 + static_cast<uint32_t>(digit - '0');
    return value;
  }

  Sequence& sequence_;
  std::vector<char> argument_ = aici::module_arg();
  std::string_view rest_{argument_.data(), argument_.size()};
  uint32_t fork_ = 0;
  bool is_forking_ = false;
};

struct Main : ScriptController {
  static std::unique_ptr<Program> make(Sequence& sequence) { return std::make_unique<Lines>(sequence); }
  Main() : ScriptController(make) {}
};
AICI_EXPOSE(Main)
