// From a grammar to the tables of its LR(1) parser.
#pragma once
#include <optional>
#include <vector>

#include "aici/grammar/grammar.hpp"
#include "aici/grammar/lr_table.hpp"
#include "aici/grammar/problem.hpp"

namespace aici::grammar {

inline constexpr size_t MAX_LR_STATES = 16384;
inline constexpr size_t MAX_ACTIONS = 4 << 20;  // states x (terminals + nonterminals)

// Accepts the language of the canonical LR(1) tables (Knuth 1965) with fewer states (Pager 1977): every reported
// conflict is a conflict of the grammar. Precedence settles shift against reduce as in yacc. If only shifts against
// single reductions are left, the parser shifts, as yacc does. If others are left, or the grammar is `general`, the
// table is for the general parser, which follows all ways, and `grammar` becomes one without empty productions.
// Conflicts are warnings; `explain` says whether they are wanted. The table may be used only if no error was added.
LrTable build_table(Grammar& grammar, std::vector<Problem>& problems, bool explain = true);

// The canonical tables of a grammar without unsettled conflicts; nullopt if there are more than `max_states`. With
// canonical tables, a terminal with an action in a state can follow every text that leads to the state (unless
// precedence forbids it).
std::optional<LrTable> build_canonical_table(const Grammar& grammar, size_t max_states);

}  // namespace aici::grammar
