// The automaton of LR(1) item sets.
#pragma once
#include <span>
#include <vector>

#include "aici/grammar/grammar.hpp"
#include "aici/regex/intern.hpp"
#include "symbols.hpp"

namespace aici::grammar {

using ItemId = uint32_t;  // a production and the number of symbols read
using StateId = uint32_t;

// All items of a grammar; those of one production are numbered in sequence.
class Items {
 public:
  Items(const Grammar& grammar, const SymbolFacts& facts);

  static constexpr SymbolId AT_END = UINT32_MAX;
  ItemId first_of(ProductionId p) const { return starts_[p]; }
  ProductionId production(ItemId item) const { return productions_[item]; }
  uint32_t dot(ItemId item) const { return item - starts_[productions_[item]]; }
  SymbolId next(ItemId item) const { return next_[item]; }  // the symbol behind the dot, or AT_END
  // The text behind this symbol: the terminals that can begin the text, and whether the text can be empty.
  const SetWord* rest_first(ItemId item) const { return &rest_first_[item * num_words_]; }
  bool rest_nullable(ItemId item) const { return rest_nullable_[item]; }
  size_t size() const { return next_.size(); }

 private:
  size_t num_words_;
  std::vector<ItemId> starts_;             // (productions,)
  std::vector<ProductionId> productions_;  // (items,)
  std::vector<SymbolId> next_;             // (items,)
  std::vector<SetWord> rest_first_;        // (items, words)
  std::vector<bool> rest_nullable_;        // (items,)
};

// A state is its kernel: items, each with the set of terminals that may follow its production. States with the same
// items are merged if Pager's weak compatibility holds (1977), which adds no conflict; with `canonical`, only if the
// sets are equal too.
class Automaton {
 public:
  Automaton(const Grammar& grammar, const SymbolFacts& facts, const Items& items, bool canonical);

  // Returns false if there are more than `max_states`.
  bool build(size_t max_states);

  struct Edge {
    SymbolId symbol;
    StateId to;
  };
  // The closure of a kernel: for each nonterminal, the terminals that may follow. Valid until the next closure().
  struct Closure {
    const std::vector<SymbolId>& nonterminals;
    const Automaton& automaton;
    const SetWord* follow(SymbolId nonterminal) const { return automaton.closure_set(nonterminal); }
  };

  size_t num_states() const { return states_.size(); }
  const std::vector<Edge>& edges(StateId state) const { return states_[state].edges; }
  std::span<const ItemId> kernel(StateId state) const {
    const Core& core = cores_[states_[state].core];
    return {core_items_.data() + core.first, core.size};
  }
  const SetWord* lookahead(StateId state, size_t kernel_index) const {
    return &sets_[states_[state].sets + kernel_index * num_words_];
  }
  Closure closure(StateId state) { return closure(state, lookahead(state, 0)); }
  // The same, with other sets for the kernel, (kernel, words).
  Closure closure(StateId state, const SetWord* kernel_sets);
  // The terminals that may follow the head of the production, from the last closure.
  const SetWord* follow_in_closure(ProductionId p) const { return closure_set(heads_[p]); }

 private:
  struct Core {
    uint32_t first, size;  // in core_items_
    StateId newest;        // the states with this core form a list
  };
  struct State {
    uint32_t core;
    uint32_t sets;  // (kernel, words) from here in sets_
    StateId same_core;
    bool queued;
    std::vector<Edge> edges;
  };
  struct Step {  // an item advanced over the symbol
    ItemId item;
    const SetWord* set;
    uint32_t next;
  };
  static constexpr uint32_t NONE = UINT32_MAX;

  SetWord* closure_set(SymbolId nonterminal) { return &closure_sets_[(nonterminal - num_terminals_) * num_words_]; }
  const SetWord* closure_set(SymbolId nonterminal) const { return &closure_sets_[(nonterminal - num_terminals_) * num_words_]; }
  bool follow(ItemId item, const SetWord* set);
  void expand(StateId state);
  void add_step(SymbolId symbol, ItemId item, const SetWord* set);
  void take_kernel(SymbolId symbol);
  StateId target(StateId from, SymbolId symbol);
  uint32_t core_of_kernel();
  bool compatible(const State& state) const;
  bool contains(const State& state) const;
  void merge(StateId state);
  StateId add_state(uint32_t core);
  void drop_unreachable();

  const SymbolFacts& facts_;
  const Items& items_;
  bool canonical_;
  SymbolId num_terminals_;
  size_t num_words_;
  std::vector<SymbolId> heads_;  // (productions,)

  std::vector<State> states_;
  std::vector<SetWord> sets_;
  std::vector<Core> cores_;
  std::vector<ItemId> core_items_;
  regex::InternTable core_table_;
  std::vector<StateId> queue_;

  // The current closure.
  std::vector<SetWord> closure_sets_;   // (nonterminals, words)
  std::vector<bool> in_closure_;        // (nonterminals,)
  std::vector<bool> waiting_;           // (nonterminals,)
  std::vector<SymbolId> closure_list_, worklist_;
  // The steps out of the current state, a list per symbol.
  std::vector<Step> steps_;
  std::vector<uint32_t> step_heads_;  // (symbols,)
  std::vector<SymbolId> step_symbols_;
  // The current kernel.
  std::vector<ItemId> kernel_items_;
  std::vector<SetWord> kernel_sets_;
};

}  // namespace aici::grammar
