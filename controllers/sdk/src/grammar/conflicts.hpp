// Report conflicts in the words of the grammar, with an example input for each.
#pragma once
#include <vector>

#include "aici/grammar/problem.hpp"
#include "automaton.hpp"

namespace aici::grammar {

// Precedence did not decide the action in `state` before `terminal`: several of a shift and reductions are left.
struct Conflict {
  StateId state;
  SymbolId terminal;
  bool shift;
  std::vector<ProductionId> reductions;
};

struct TableParts {
  const Grammar& grammar;
  const SymbolFacts& facts;
  const Items& items;
  Automaton& automaton;
};

// What became of the conflicts. Shifted: the parser shifts, as yacc does. Followed: the parser follows all ways.
enum class Outcome : uint8_t { Shifted, Followed };

// One warning per pair of productions; at most a handful, then the number of further conflicts.
void report_conflicts(const TableParts& parts, const std::vector<Conflict>& conflicts, Outcome outcome, std::vector<Problem>& problems);

}  // namespace aici::grammar
