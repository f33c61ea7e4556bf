// One terminal: from its quoted text.
#pragma once
#include <string_view>
#include <vector>

#include "aici/grammar/problem.hpp"
#include "aici/regex/expr.hpp"

namespace aici::grammar {

// "/[0-9]+/" is a regex, "/" and "//" are keywords.
inline bool is_quoted_regex(std::string_view quoted) { return quoted.size() > 2 && quoted.front() == '/' && quoted.back() == '/'; }

Terminal make_terminal(std::string_view quoted, Place place, Precedence precedence, std::vector<Problem>& problems);

// The texts of a terminal; NOTHING for a regex that is refused.
regex::ExprId terminal_expr(const Terminal& terminal, regex::Exprs& exprs);

// Regexes that are refused, that match nothing, or, but for SKIP, that match the empty string; what is under SKIP or
// NEVER and also used in a rule.
void check_terminals(const Grammar& grammar, std::vector<Problem>& problems);

}  // namespace aici::grammar
