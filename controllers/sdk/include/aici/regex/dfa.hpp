// A deterministic automaton over bytes, built on demand.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "aici/regex/expr.hpp"
#include "aici/slices.hpp"

namespace aici::regex {

using StateId = uint16_t;

// A state is an expression for the text that may follow. State 0 is dead (nothing may follow, not even the end). No
// other state is dead: every other state has a way to the end.
class Dfa {
 public:
  static constexpr StateId DEAD = 0;
  // Together these limits stay within the 64 MiB of a guest, beside a vocabulary of 128k tokens and its masks. One row
  // less than 2^14: the C library rounds blocks up to powers of two, including its own word.
  static constexpr size_t MAX_STATES = (1 << 14) - 1;  // 8 MB of rows
  static constexpr size_t MAX_EXPRS = 150000;  // in weight

  // Whether an automaton of `start` has room to grow while in use. Forgets everything `start` does not need, so `start`
  // may change. Ask before promising anything: an automaton without room fails at its first mask.
  static bool fits(Exprs& exprs, ExprId& start);

  Dfa(Exprs exprs, ExprId start);

  StateId start() const { return start_; }
  StateId next(StateId state, uint8_t byte) {
    StateId to = rows_[state * 256u + byte];
    return to != UNKNOWN ? to : explore(state, byte);
  }
  bool accepts(StateId state) const { return exprs_.nullable(state_exprs_[state]); }

  // A state that allows the same beginnings of up to `longest` bytes (see Exprs::capped for exceptions); the same state
  // for as many states as possible.
  // Always call with the same number.
  StateId capped(StateId state, uint32_t longest);

  // n if texts of the class may follow iff they have at most n code points, the last of which may be incomplete;
  // ANY_NUMBER if all may follow; 0 if neither holds, or if a few steps do not decide.
  uint32_t num_allowed(StateId state, const TextClass& text);

  // The states of head and tail, if the state has the form head . tail (see Exprs::split).
  struct Split {
    StateId head, tail;
  };
  std::optional<Split> split(StateId state);

  // The state after a key that awaits the text of the key; see Exprs::with_key.
  bool has_other_keys() const { return exprs_.has_other_keys(); }
  bool awaits_key(StateId state) const { return exprs_.awaits_key(state_exprs_[state]); }
  StateId with_key(StateId state, std::string_view key);

  // Forget all states but the start and `live`, which get new numbers. Worthwhile if is_crowded().
  void compact(std::span<StateId> live);
  bool is_crowded() const { return num_states() > MAX_STATES / 2 || exprs_.weight() > MAX_EXPRS / 2; }
  // How often states were renumbered.
  uint32_t num_compactions() const { return num_compactions_; }

  // Set once the automaton has exceeded its limits; from then on unknown transitions lead to DEAD.
  const char* error() const { return error_; }
  size_t num_states() const { return state_exprs_.size(); }

 private:
  static constexpr StateId UNKNOWN = UINT16_MAX;

  // A body checked before: whether the body is one code point of a class.
  struct CodePointBody {
    ExprId body;
    const TextClass* text;
    bool holds;
  };

  bool allows_all(StateId state, const TextClass& text);
  bool is_code_point(ExprId body, const TextClass& text);
  bool begins_with(ExprId e, const TextClass& text);
  StateId explore(StateId state, uint8_t byte);
  void add_dead_state();
  StateId state_of(ExprId expr);

  Exprs exprs_;
  std::vector<ExprId> state_exprs_;   // (states,)
  std::vector<StateId> capped_;       // (states,) UNKNOWN if never asked for
  std::vector<StateId> states_;       // (exprs,) UNKNOWN if there is none
  std::vector<StateId> rows_;         // (states, 256)
  std::vector<CodePointBody> bodies_;
  const char* error_ = nullptr;
  StateId start_;
  uint32_t num_compactions_ = 0;
};

}  // namespace aici::regex
