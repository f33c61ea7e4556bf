// A deterministic automaton over bytes, built while it is used.
#pragma once
#include <cstdint>
#include <vector>

#include "aici/regex/expr.hpp"

namespace aici::regex {

using StateId = uint16_t;

// A state is an expression: what may still follow. State 0 is dead (nothing may follow, not even the end), and no other
// state is: from each there is a way to the end.
class Dfa {
 public:
  static constexpr StateId DEAD = 0;
  static constexpr size_t MAX_STATES = 32000;    // 16 MB of rows
  static constexpr size_t MAX_EXPRS = 1000000;   // 20 MB of nodes

  Dfa(Exprs exprs, ExprId start);

  StateId start() const { return start_; }
  StateId next(StateId state, uint8_t byte) {
    StateId to = rows_[state * 256u + byte];
    return to != UNKNOWN ? to : explore(state, byte);
  }
  bool accepts(StateId state) const { return exprs_.nullable(state_exprs_[state]); }

  // Set once the automaton has outgrown its bounds; from then on transitions that are not known yet lead to DEAD.
  const char* error() const { return error_; }
  size_t num_states() const { return state_exprs_.size(); }

 private:
  static constexpr StateId UNKNOWN = UINT16_MAX;

  StateId explore(StateId state, uint8_t byte);
  StateId state_of(ExprId expr);

  Exprs exprs_;
  std::vector<uint8_t> classes_;      // (256,) class of each byte
  std::vector<ExprId> state_exprs_;   // (states,)
  std::vector<StateId> states_;       // (exprs,) UNKNOWN where there is none
  std::vector<StateId> rows_;         // (states, 256)
  const char* error_ = nullptr;
  StateId start_;
};

}  // namespace aici::regex
