// A deterministic automaton over bytes, built while it is used.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "aici/regex/expr.hpp"
#include "aici/slices.hpp"

namespace aici::regex {

using StateId = uint16_t;

// A state is an expression: what may still follow. State 0 is dead (nothing may follow, not even the end), and no other
// state is: from each there is a way to the end.
class Dfa {
 public:
  static constexpr StateId DEAD = 0;
  // Together these stay within the 64 MiB that a guest has, next to a vocabulary of 128k tokens and its masks. One row
  // less than 2^14: the C library rounds blocks up to powers of two, its own word included.
  static constexpr size_t MAX_STATES = (1 << 14) - 1;  // 8 MB of rows
  static constexpr size_t MAX_EXPRS = 150000;  // in weight

  // Whether an automaton of `start` has room to grow while it is used. Forgets what `start` does not need, and so may
  // change it. Ask before anything is promised: an automaton that has no room fails at its first mask.
  static bool fits(Exprs& exprs, ExprId& start);

  Dfa(Exprs exprs, ExprId start);

  StateId start() const { return start_; }
  StateId next(StateId state, uint8_t byte) {
    StateId to = rows_[state * 256u + byte];
    return to != UNKNOWN ? to : explore(state, byte);
  }
  bool accepts(StateId state) const { return exprs_.nullable(state_exprs_[state]); }

  // A state that allows the same beginnings of up to `longest` bytes, the same for as many states as possible. Always
  // asked with the same number.
  StateId capped(StateId state, uint32_t longest);

  // n when texts of the class may follow iff they have at most n code points, the last of which may have only begun;
  // ANY_NUMBER when all may. 0 when it is neither or is not found out in a few steps.
  uint32_t num_allowed(StateId state, const TextClass& text);

  // The states of the head and of the tail, where the state is of the form head . tail (see Exprs::split).
  struct Split {
    StateId head, tail;
  };
  std::optional<Split> split(StateId state);

  // Forgets all states but the start and those in `live`, which get new numbers. Worth it when is_crowded().
  void compact(std::span<StateId> live);
  bool is_crowded() const { return num_states() > MAX_STATES / 2 || exprs_.weight() > MAX_EXPRS / 2; }
  // How often states were renumbered.
  uint32_t num_compactions() const { return num_compactions_; }

  // Set once the automaton has outgrown its bounds; from then on transitions that are not known yet lead to DEAD.
  const char* error() const { return error_; }
  size_t num_states() const { return state_exprs_.size(); }

 private:
  static constexpr StateId UNKNOWN = UINT16_MAX;

  struct Pair {
    StateId state;
    TextClass::State at;
    bool operator==(const Pair&) const = default;
  };
  // A body that was asked about before: whether it is a code point, for a class that it holds.
  struct CodePointBody {
    ExprId body;
    const TextClass* text;
    bool holds;
  };

  bool allows_all(StateId state, const TextClass& text);
  bool is_code_point(ExprId body, const TextClass& text);
  bool begins_with(ExprId e, const TextClass& text);
  template <typename Visit>
  bool stays_alive(StateId state, const TextClass& text, Visit visit);
  StateId explore(StateId state, uint8_t byte);
  void add_dead_state();
  StateId state_of(ExprId expr);

  Exprs exprs_;
  std::vector<ExprId> state_exprs_;   // (states,)
  std::vector<StateId> capped_;       // (states,) UNKNOWN where it was not asked for
  std::vector<StateId> states_;       // (exprs,) UNKNOWN where there is none
  std::vector<StateId> rows_;         // (states, 256)
  std::vector<CodePointBody> bodies_;
  const char* error_ = nullptr;
  StateId start_;
  uint32_t num_compactions_ = 0;
};

}  // namespace aici::regex
