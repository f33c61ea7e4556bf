// One terminal: from its quoted text.
#pragma once
#include <string_view>
#include <vector>

#include "aici/grammar/problem.hpp"

namespace aici::grammar {

Terminal make_terminal(std::string_view quoted, Place place, Precedence precedence, std::vector<Problem>& problems);

// Regexes that are refused, that match nothing, or, but for SKIP, that match the empty string; SKIP used in a rule.
void check_terminals(const Grammar& grammar, std::vector<Problem>& problems);

}  // namespace aici::grammar
