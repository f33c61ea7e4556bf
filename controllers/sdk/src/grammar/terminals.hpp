// One terminal: from its quoted text.
#pragma once
#include <string_view>
#include <vector>

#include "aici/grammar/problem.hpp"
#include "aici/regex/code_points.hpp"
#include "aici/regex/expr.hpp"

namespace aici::grammar {

// "/[0-9]+/" is a regex, "/" and "//" are keywords.
inline bool is_quoted_regex(std::string_view quoted) { return quoted.size() > 2 && quoted.front() == '/' && quoted.back() == '/'; }

Terminal make_terminal(std::string_view quoted, Place place, Precedence precedence, std::vector<Problem>& problems);

// Of two terminals that match the same lexeme, `x` wins. Keywords win over regexes, longer text over shorter, then the
// earlier.
inline bool wins_over(const Grammar& grammar, SymbolId x, SymbolId y) {
  const Terminal &p = grammar.terminals[x], &q = grammar.terminals[y];
  if (p.preference != q.preference) return p.preference > q.preference;
  if (p.kind != q.kind) return p.kind == Terminal::Kind::Keyword;
  return p.text.size() != q.text.size() ? p.text.size() > q.text.size() : x < y;
}

// A class of terminals, of which all or none are what a lexeme is. Of `order`, the best first.
inline std::vector<uint32_t> classes_of(const Grammar& grammar, const std::vector<SymbolId>& order) {
  std::vector<uint32_t> classes;
  for (uint32_t rank = 0; rank < order.size(); rank++)
    classes.push_back(grammar.ambiguous ? UINT32_MAX - grammar.terminals[order[rank]].preference : rank);
  return classes;
}

Terminal json_terminal(std::string_view schema, Place place);

// The texts of a terminal; NOTHING for a regex or a schema that is refused, and for a schema inside a JSON string.
regex::ExprId terminal_expr(const Terminal& terminal, regex::Exprs& exprs, regex::Encoding encoding = regex::Encoding::Utf8);

// Regexes and schemas that are refused, that match nothing, or, but for SKIP, that match the empty string; what is under SKIP or
// NEVER and also used in a rule.
void check_terminals(const Grammar& grammar, std::vector<Problem>& problems);

}  // namespace aici::grammar
