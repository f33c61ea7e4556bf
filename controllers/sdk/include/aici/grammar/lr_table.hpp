// The tables of an LR(1) parser.
#pragma once
#include <cstdint>
#include <vector>

#include "aici/grammar/grammar.hpp"

namespace aici::grammar {

using LrState = uint16_t;  // 0 is the start state

// The action of a state for the next terminal.
struct Action {
  enum class Kind : uint8_t { Error, Shift, Reduce, Accept };
  Kind kind = Kind::Error;
  uint16_t target = 0;  // Shift: the next LrState. Reduce: the ProductionId.
};

// Conflicts are settled already, or the general parser follows all ways. In a state of minimal LR(1) a reduction may precede an error, so only simulating the
// reductions on the stack shows whether a terminal can really follow.
struct LrTable {
  uint32_t num_states = 0, num_terminals = 0, num_nonterminals = 0;
  uint32_t num_settled = 0;     // conflicts settled by precedence
  uint32_t num_shifted = 0;     // conflicts in which the shift was taken, as yacc does
  uint32_t num_followed = 0;    // conflicts in which all ways are followed
  bool general = false;         // for the general parser: no production is empty
  std::vector<Action> actions;  // (states, terminals)
  std::vector<LrState> gotos;   // (states, nonterminals); NO_STATE if there is none
  // Further reductions of a state before a terminal, beside its action; sorted by state. Only if general.
  struct Extra {
    LrState state;
    SymbolId terminal;
    ProductionId production;
  };
  std::vector<Extra> extra;

  static constexpr LrState NO_STATE = UINT16_MAX;

  Action action(LrState state, SymbolId terminal) const { return actions[state * num_terminals + terminal]; }
  LrState go_to(LrState state, SymbolId nonterminal) const {  // a symbol id, not an index of a nonterminal
    return gotos[state * num_nonterminals + (nonterminal - num_terminals)];
  }
};

}  // namespace aici::grammar
