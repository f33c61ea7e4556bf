// Input: the text of a .y file.
#include <algorithm>

#include "aici/grammar/check.hpp"
#include "aici/grammar/reader.hpp"
#include "aici/grammar/tables.hpp"
#include "aici/json_value.hpp"
#include "walk.hpp"

using namespace aici;
using namespace aici::grammar;

namespace {

void check_problems(const std::vector<Problem>& problems, std::string_view text) {
  for (const Problem& problem : problems) {
    native::require(!problem.message.empty(), "a problem has a message");
    native::require(problem.place.line <= 1 + static_cast<size_t>(std::ranges::count(text, '\n')), "a problem's line is in the text");
    native::require(problem.place.column <= text.size() + 1, "a problem's column is in the text");
    native::require(!describe(problem).empty(), "a problem can be described");
  }
}

void check_table(const Grammar& grammar, const LrTable& table) {
  for (LrState state = 0; state < table.num_states; state++) {
    for (SymbolId terminal = 0; terminal < table.num_terminals; terminal++) {
      Action action = table.action(state, terminal);
      if (action.kind == Action::Kind::Shift) native::require(action.target < table.num_states, "shifts go to a state");
      if (action.kind == Action::Kind::Reduce) native::require(action.target < grammar.productions.size(), "reductions are productions");
      if (action.kind == Action::Kind::Accept) native::require(terminal == END, "only the end is accepted");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<Problem> problems;
  std::optional<Grammar> grammar = read_grammar(text, problems);
  native::require(grammar.has_value() == !has_errors(problems), "either a grammar or errors");
  if (grammar) {
    LrTable table = build_table(*grammar, problems);
    if (!has_errors(problems)) check_table(*grammar, table);
  }
  check_problems(problems, text);
  Text answer = check_answer(text);
  json::Value value;
  if (std::ranges::all_of(text, [](char c) { return static_cast<uint8_t>(c) < 0x80; }))
    native::require(!json::parse(answer, value), "the answer to tools is JSON");
  return 0;
}
