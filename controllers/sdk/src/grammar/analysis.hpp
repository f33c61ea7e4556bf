// Checks of a grammar that need no tables.
#pragma once
#include <vector>

#include "aici/grammar/problem.hpp"

namespace aici::grammar {

// Rules that can never end are errors; rules and terminals unreachable from the start are warnings.
void check_rules(const Grammar& grammar, std::vector<Problem>& problems);

}  // namespace aici::grammar
