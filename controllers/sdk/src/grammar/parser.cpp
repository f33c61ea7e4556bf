#include "aici/grammar/parser.hpp"

#include "aici/grammar/reader.hpp"
#include "aici/grammar/scannerless.hpp"
#include "aici/grammar/tables.hpp"

namespace aici::grammar {

namespace {

constexpr size_t MAX_TOLD = 10;  // problems

}  // namespace

std::optional<Parser> read_parser(std::string_view text, Text& why) {
  std::vector<Problem> problems;
  std::optional<Grammar> grammar = read_grammar(text, problems);
  LrTable table;
  std::optional<regex::Dfa> automaton;
  if (grammar && grammar->scannerless) automaton = build_scannerless(*grammar, problems);
  else if (grammar) table = build_table(*grammar, problems, false);
  size_t told = 0;
  for (const Problem& problem : problems)
    if (problem.severity == Severity::Error && told++ < MAX_TOLD) why << (told > 1 ? "\n" : "") << describe(problem);
  if (told) return std::nullopt;
  return Parser{static_cast<Grammar&&>(*grammar), static_cast<LrTable&&>(table), static_cast<std::optional<regex::Dfa>&&>(automaton)};
}

}  // namespace aici::grammar
