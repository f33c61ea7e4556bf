#include "aici/grammar/check.hpp"

#include <algorithm>

#include "aici/grammar/reader.hpp"
#include "aici/grammar/scannerless.hpp"
#include "aici/grammar/tables.hpp"
#include "aici/json.hpp"
#include "lexical.hpp"

namespace aici::grammar {
namespace {

constexpr size_t MAX_PROBLEMS = 50;
constexpr size_t MAX_CANONICAL_STATES = 8192;

// Before the tables are built, which may rewrite the rules.
Text counts(const Grammar& grammar) {
  size_t skipped = 0;
  for (const Terminal& terminal : grammar.terminals) skipped += terminal.skip;
  Text out("{\"rules\":");
  out << grammar.nonterminals.size() - 1 << ",\"productions\":" << grammar.productions.size() - 1
      << ",\"terminals\":" << grammar.terminals.size() - 1 - skipped << ",\"skipped\":" << skipped
      << ",\"contextual\":" << (grammar.contextual ? "true" : "false");
  return out;
}

Text facts(const Grammar& grammar, const LrTable& table) {
  Text out(",\"engine\":\"");
  out << (grammar.scannerless ? "scannerless" : table.general ? "general" : "lr") << "\",\"states\":" << table.num_states << ",\"settled\":" << table.num_settled
      << ",\"shifted\":" << table.num_shifted << ",\"followed\":" << table.num_followed;
  return out << '}';
}

Text listed(std::vector<Problem>& problems) {
  // Insertion sort, which is stable; std::stable_sort needs an operator new that guests lack.
  auto before = [](const Problem& x, const Problem& y) {
    return x.place.line != y.place.line ? x.place.line < y.place.line : x.place.column < y.place.column;
  };
  for (auto at = problems.begin(); at != problems.end(); ++at)
    std::rotate(std::upper_bound(problems.begin(), at, *at, before), at, at + 1);
  Text out("[");
  for (size_t i = 0; i < problems.size() && i < MAX_PROBLEMS; i++) {
    const Problem& problem = problems[i];
    if (i) out << ',';
    out << "{\"severity\":\"" << (problem.severity == Severity::Error ? "error" : "warning") << "\",\"line\":" << problem.place.line
        << ",\"column\":" << problem.place.column << ",\"message\":" << json::quoted(problem.message)
        << ",\"example\":" << json::quoted(problem.example) << '}';
  }
  return out << ']';
}

}  // namespace

Text check_answer(std::string_view grammar_text) {
  std::vector<Problem> problems;
  std::optional<Grammar> grammar = read_grammar(grammar_text, problems);
  Text about("null");
  if (grammar) {
    about = counts(*grammar);
    LrTable table;
    if (grammar->scannerless) build_scannerless(*grammar, problems);
    else table = build_table(*grammar, problems);
    about << facts(*grammar, table);
    if (!grammar->scannerless && !grammar->indentation && !has_errors(problems)) {
      std::optional<LrTable> canonical = build_canonical_table(*grammar, MAX_CANONICAL_STATES);
      if (canonical) canonical->general = table.general;
      check_lexical(*grammar, canonical ? *canonical : table, problems);
    }
  }
  Text out("{\"problems\":");
  return out << listed(problems) << ",\"summary\":" << about << '}';
}

}  // namespace aici::grammar
