// What may follow a reduction whatever the text was that led to its state.
#pragma once
#include <vector>

#include "automaton.hpp"

namespace aici::grammar {

// States of minimal LR(1) stand for several canonical ones, and their sets are unions. These are the intersections, or
// something smaller: going into rules can only lose by intersecting first. The automaton must stay.
class SureLookaheads {
 public:
  SureLookaheads(const SymbolFacts& facts, const Items& items, Automaton& automaton);

  // The set of the finished production in the state. Valid until the next call.
  const SetWord* of(StateId state, ProductionId production);

 private:
  bool narrow(StateId from, StateId to);
  SetWord* kernel_set(StateId state, size_t i) { return &sets_[starts_[state] + i * num_words_]; }

  const Items& items_;
  Automaton& automaton_;
  size_t num_words_;
  std::vector<size_t> starts_;  // (states,) into sets_
  std::vector<SetWord> sets_;   // (kernel, words) of each state
};

}  // namespace aici::grammar
