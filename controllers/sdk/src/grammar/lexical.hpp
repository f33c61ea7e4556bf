// Whether the lexer can tell the terminals apart.
#pragma once
#include <vector>

#include "aici/grammar/lr_table.hpp"
#include "aici/grammar/problem.hpp"

namespace aici::grammar {

// Errors: terminals that never win, and lexemes after which the parser can only take terminals that would continue the
// lexeme, so that a text that was allowed could have no end. Nothing is reported in vain; all is found with canonical
// tables and without %option contextual. Minimal tables know less about what can follow; and with contextual lexing, what
// follows a terminal is looked at only where the parser shifts it at once.
void check_lexical(const Grammar& grammar, const LrTable& table, std::vector<Problem>& problems);

}  // namespace aici::grammar
