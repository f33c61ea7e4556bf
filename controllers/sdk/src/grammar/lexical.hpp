// Whether the lexer can tell the terminals apart.
#pragma once
#include <vector>

#include "aici/grammar/lr_table.hpp"
#include "aici/grammar/problem.hpp"

namespace aici::grammar {

// Errors: terminals that never win, and lexemes after which the parser can only take terminals that would continue the
// lexeme, so that a text that was allowed could have no end. With %option contextual these are warnings: which terminals
// compete is known to the parser exactly and here only roughly.
void check_lexical(const Grammar& grammar, const LrTable& table, std::vector<Problem>& problems);

}  // namespace aici::grammar
