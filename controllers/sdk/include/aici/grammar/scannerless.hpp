// Grammars without a lexer (`%option scannerless`): terminals stand one after the other, no text is skipped, and every
// reading is followed. The grammar becomes one expression over bytes with recursive rules, and its derivatives are the
// states. So left recursion and ambiguity are no limits, and no text is read longer than a rule wants.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "aici/grammar/grammar.hpp"
#include "aici/grammar/problem.hpp"
#include "aici/regex/dfa.hpp"

namespace aici::grammar {

// nullopt, with an error among the problems, if no text is allowed or the automaton would be too large.
std::optional<regex::Dfa> build_scannerless(const Grammar& grammar, std::vector<Problem>& problems);

// The sentences of a scannerless grammar, the text of a .y file, as they stand inside the quotes of a JSON string. NOTHING,
// with `why`, for a grammar that is refused. Rules of the result are settled by the caller.
regex::ExprId read_string_grammar(std::string_view text, regex::Exprs& exprs, Text& why);

// As accepts_answer. `expected` lists characters and ranges of characters.
Text scannerless_answer(regex::Dfa& dfa, std::string_view input);

}  // namespace aici::grammar
