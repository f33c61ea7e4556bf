// What can be said about a grammar without tables.
#pragma once
#include <vector>

#include "aici/grammar/problem.hpp"

namespace aici::grammar {

// Rules that can never end are errors; rules and terminals that the start cannot reach are warned of.
void check_rules(const Grammar& grammar, std::vector<Problem>& problems);

}  // namespace aici::grammar
