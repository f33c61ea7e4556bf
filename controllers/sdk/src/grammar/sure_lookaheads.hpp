// The terminals that may follow a reduction, whatever text led to its state.
#pragma once
#include <vector>

#include "automaton.hpp"

namespace aici::grammar {

// A state of minimal LR(1) stands for several canonical states, and its sets are unions. The sets here are the
// intersections or smaller: intersecting before rules are entered only loses members. The automaton must outlive this
// object.
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
