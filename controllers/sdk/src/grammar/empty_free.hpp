// A grammar for the general parser: no production is empty, and no rule derives itself.
#pragma once
#include "aici/grammar/grammar.hpp"

namespace aici::grammar {

// Rewrites the productions; the sentences stay the same, but for the empty sentence: returns whether it is one. Stacks
// of the general parser then have no cycles: every symbol on a stack stands for at least one terminal.
bool remove_empty_productions(Grammar& grammar);

}  // namespace aici::grammar
