// Reports conflicts in the words of the grammar, with an input that leads to each.
#pragma once
#include <vector>

#include "aici/grammar/problem.hpp"
#include "automaton.hpp"

namespace aici::grammar {

// Precedence did not settle what to do in `state` before `terminal`: more than one of a shift and reductions.
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

// One problem for each pair of productions; at most a handful of them, then a count of the rest.
void report_conflicts(const TableParts& parts, const std::vector<Conflict>& conflicts, std::vector<Problem>& problems);

}  // namespace aici::grammar
