// Check whether the lexer can tell the terminals apart.
#pragma once
#include <vector>

#include "aici/grammar/lr_table.hpp"
#include "aici/grammar/problem.hpp"

namespace aici::grammar {

// Errors: terminals that never win; and lexemes after which the parser only takes terminals that would continue the
// lexeme, so that an allowed text could have no end. Every report is a real problem. All problems are found with
// canonical tables and without %option contextual: minimal tables know less about following terminals, and contextual
// lexing checks a follower only if the parser shifts the follower at once. With a general table, a lexeme without an end is a warning: the
// lexeme may have an end in another way to read the text.
void check_lexical(const Grammar& grammar, const LrTable& table, std::vector<Problem>& problems);

}  // namespace aici::grammar
