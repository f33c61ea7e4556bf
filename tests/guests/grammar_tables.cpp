// Answers with the tables of grammars: {"grammars": [text, ...]} -> [{"problems", "table"}, ...]; table is null after
// an error, and otherwise holds the data needed by tests/support/lr_oracle.py to run the grammar.
#include "aici/grammar/reader.hpp"
#include "aici/grammar/tables.hpp"
#include "aici/json.hpp"
#include "aici/tool.hpp"

namespace {

using namespace aici::grammar;

aici::Text names(const Grammar& grammar) {
  aici::Text out("[");
  for (size_t t = 0; t < grammar.terminals.size(); t++) {
    if (t) out << ',';
    out << "{\"name\":" << aici::json::quoted(grammar.terminals[t].name) << ",\"text\":" << aici::json::quoted(grammar.terminals[t].text)
        << ",\"skip\":" << (grammar.terminals[t].skip ? "true" : "false") << '}';
  }
  return out << ']';
}

aici::Text productions(const Grammar& grammar) {
  aici::Text out("[");
  for (size_t p = 0; p < grammar.productions.size(); p++) {
    const Production& production = grammar.productions[p];
    std::vector<uint32_t> row{production.head};
    row.insert(row.end(), production.body.begin(), production.body.end());
    if (p) out << ',';
    out << aici::json::array(row);
  }
  return out << ']';
}

// Actions as kind * 65536 + target.
aici::Text table_json(const Grammar& grammar, const LrTable& table) {
  std::vector<uint32_t> actions, gotos;
  for (Action action : table.actions) actions.push_back(static_cast<uint32_t>(action.kind) << 16 | action.target);
  for (LrState state : table.gotos) gotos.push_back(state);
  aici::Text out("{\"terminals\":");
  out << names(grammar) << ",\"num_nonterminals\":" << table.num_nonterminals << ",\"productions\":" << productions(grammar)
      << ",\"num_states\":" << table.num_states << ",\"settled\":" << table.num_settled
      << ",\"shifted\":" << table.num_shifted << ",\"general\":" << (table.general ? "true" : "false") << ",\"actions\":" << aici::json::array(actions)
      << ",\"gotos\":" << aici::json::array(gotos);
  return out << '}';
}

aici::Text answer_for(std::string_view text) {
  std::vector<Problem> problems;
  std::optional<Grammar> grammar = read_grammar(text, problems);
  aici::Text table("null");
  if (grammar) {
    LrTable built = build_table(*grammar, problems);
    if (!has_errors(problems)) table = table_json(*grammar, built);
  }
  aici::Text out("{\"problems\":[");
  for (size_t i = 0; i < problems.size(); i++) {
    if (i) out << ',';
    out << "{\"error\":" << (problems[i].severity == Severity::Error ? "true" : "false") << ",\"line\":" << problems[i].place.line
        << ",\"column\":" << problems[i].place.column << ",\"message\":" << aici::json::quoted(problems[i].message)
        << ",\"example\":" << aici::json::quoted(problems[i].example) << '}';
  }
  return out << "],\"table\":" << table << '}';
}

// The strings of an array in order, each with its quotes.
aici::Text answer(std::string_view question) {
  std::string_view rest = *aici::json::get(question, "grammars");
  aici::Text out("[");
  bool first = true;
  for (size_t at = rest.find('"'); at != std::string_view::npos; at = rest.find('"', at)) {
    size_t end = at + 1;
    while (rest[end] != '"') end += rest[end] == '\\' ? 2 : 1;
    std::string_view quoted = rest.substr(at, end + 1 - at);
    if (!first) out << ',';
    first = false;
    out << answer_for(*aici::json::unescaped(quoted));
    at = end + 1;
  }
  return out << ']';
}

}  // namespace

AICI_EXPOSE_TOOL(answer)
