#include "sure_lookaheads.hpp"

#include <algorithm>

namespace aici::grammar {

SureLookaheads::SureLookaheads(const SymbolFacts& facts, const Items& items, Automaton& automaton)
    : items_(items), automaton_(automaton), num_words_(facts.num_words()) {
  for (StateId state = 0; state < automaton.num_states(); state++) {
    starts_.push_back(sets_.size());
    sets_.resize(sets_.size() + automaton.kernel(state).size() * num_words_, ~SetWord{0});
  }
  std::fill(sets_.begin(), sets_.begin() + static_cast<ptrdiff_t>(num_words_), 0);
  add(sets_.data(), END);
  std::vector<StateId> queue{0};
  std::vector<bool> queued(automaton.num_states(), false);
  for (size_t at = 0; at < queue.size(); at++) {
    StateId from = queue[at];
    queued[from] = false;
    automaton.closure(from, kernel_set(from, 0));
    for (const Automaton::Edge& edge : automaton.edges(from))
      if (narrow(from, edge.to) && !queued[edge.to]) queued[edge.to] = true, queue.push_back(edge.to);
  }
}

// Intersect with the sets that come over an edge out of the state of the last closure.
bool SureLookaheads::narrow(StateId from, StateId to) {
  std::span<const ItemId> source = automaton_.kernel(from), target = automaton_.kernel(to);
  bool changed = false;
  for (size_t i = 0; i < target.size(); i++) {
    // The closure begins every production but the first, which the kernel of the start begins.
    bool begun = items_.dot(target[i]) == 1 && items_.production(target[i]) != 0;
    auto before = std::lower_bound(source.begin(), source.end(), target[i] - 1);
    const SetWord* set = begun ? automaton_.follow_in_closure(items_.production(target[i]))
                               : kernel_set(from, static_cast<size_t>(before - source.begin()));
    SetWord* known = kernel_set(to, i);
    for (size_t word = 0; word < num_words_; word++) {
      changed |= (known[word] & ~set[word]) != 0;
      known[word] &= set[word];
    }
  }
  return changed;
}

const SetWord* SureLookaheads::of(StateId state, ProductionId production) {
  std::span<const ItemId> kernel = automaton_.kernel(state);
  for (size_t i = 0; i < kernel.size(); i++)
    if (items_.production(kernel[i]) == production && items_.next(kernel[i]) == Items::AT_END) return kernel_set(state, i);
  automaton_.closure(state, kernel_set(state, 0));
  return automaton_.follow_in_closure(production);
}

}  // namespace aici::grammar
