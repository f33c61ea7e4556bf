// From bytes to terminals: one automaton over all terminals, built on demand.
//
// The longest match wins: bytes are read until no terminal can continue. Then the lexeme that ended one byte before is
// the best terminal that matched there, and the byte begins the next lexeme. If no terminal matched there, the byte is
// refused: the lexer never goes back by more than one byte. Keywords win over regexes, a longer keyword over a shorter,
// and of two regexes the longer pattern, then the earlier.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "aici/grammar/grammar.hpp"
#include "aici/grammar/terminal_sets.hpp"
#include "aici/regex/expr.hpp"
#include "aici/slices.hpp"

namespace aici::grammar {

// With %indentation, the input begins as if after a newline, and a state within a newline knows the column.
//
// A state is the list of terminals that the bytes of the lexeme so far can still become, best first, each with the
// expression of the missing rest. The owner of the TerminalSets must keep them at their address.
class Lexer {
 public:
  using State = uint16_t;
  static constexpr State DEAD = 0;
  static constexpr SymbolId NONE = UINT32_MAX;
  static constexpr size_t MAX_STATES = (1 << 14) - 1;  // 8 MB of rows; see regex::Dfa
  static constexpr size_t MAX_EXPRS = 150000;          // in weight

  // All regexes of `grammar` must be valid.
  Lexer(const Grammar& grammar, TerminalSets& sets);

  // The state at the start of the input. Nothing is pending: the lexeme to emit is empty and is no lexeme. SKIP
  // patterns may start with a newline, so text skipped from the start of a line is skipped on the first line too.
  State initial(SetId viable);
  // The state at the start of a lexeme, if the parser can take `viable`. No byte ever leads to this state.
  State start(SetId viable) {
    if (!contextual_) return start_;
    return viable < starts_.size() && starts_[viable] != UNKNOWN ? starts_[viable] : add_start(viable);
  }
  State next(State state, uint8_t byte) {
    State to = row_data_[state * 256u + byte];
    return to != UNKNOWN ? to : explore(state, byte);
  }
  // The terminal of the lexeme if the lexeme ends here; NONE if it cannot end. Of an ambiguous grammar, perhaps several
  // terminals: see TerminalSets::lexeme_of.
  SymbolId winner(State state) const { return states_[state].winner; }
  // The terminal of %indentation; END if there is none.
  SymbolId newline() const { return newline_; }
  bool is_skip(SymbolId lexeme) const { return lexeme < skip_.size() && skip_[lexeme]; }
  // Nothing is pending.
  bool is_fresh(State state) const { return states_[state].fresh; }
  // The terminals that the lexeme can become, now or after more bytes. END stands for SKIP.
  SetId reach(State state) { return reach_[state] != TerminalSets::UNKNOWN ? reach_[state] : find_reach(state); }

  // A state with the same masks for tokens of up to `longest` bytes, the same state for as many states as possible:
  // counts that no token can exhaust do not count. Always call with the same number.
  State capped(State state, uint32_t longest);

  // n if texts of the class continue the lexeme iff they have at most n code points, the last of which may be incomplete,
  // and begin no other lexeme; 0 if that is not so, or not seen.
  uint32_t num_allowed(State state, const TextClass& text);

  // Forget all states but `live`, which get new numbers. Worthwhile if is_crowded().
  void compact(std::span<State> live);
  bool is_crowded() const { return states_.size() > MAX_STATES / 2 || exprs_.weight() > MAX_EXPRS / 2; }

  // Set once the automaton has exceeded its limits; from then on unknown transitions lead to DEAD.
  const char* error() const { return error_; }
  size_t num_terminals() const { return skip_.size(); }
  size_t num_states() const { return states_.size(); }

 private:
  static constexpr State UNKNOWN = UINT16_MAX;

  struct Member {
    uint32_t rank;  // index into order_; behind its end: `rest` is a Column
    regex::ExprId rest;
    bool operator==(const Member&) const = default;
  };
  struct StateInfo {
    uint32_t first, num;  // in members_
    SymbolId winner;
    bool fresh;
  };

  static constexpr int DERIVED_BITS = 12;
  struct Derived {
    regex::ExprId from = UINT32_MAX;
    uint32_t byte_class = 0;
    regex::ExprId to = 0;
  };

  State add_start(SetId viable);
  SymbolId find_winner(const std::vector<Member>& members) const;
  regex::ExprId derive(regex::ExprId expr, uint8_t byte);
  State explore(State state, uint8_t byte);
  State state_of(const std::vector<Member>& members);
  State add_state(const std::vector<Member>& members, bool fresh);
  void reset_states();
  void add_column(State from, uint8_t byte, std::vector<Member>& rest) const;
  bool is_column(const Member& member) const { return member.rank == order_.size(); }
  SetId find_reach(State state);
  bool can_win(State state, uint32_t rank);
  bool exceeds_better(State state, uint32_t rank);
  bool finds_win(State state, uint32_t rank);
  bool wins_soon(State state, uint32_t rank) const;
  std::span<const Member> members(State state) const { return {members_.data() + states_[state].first, states_[state].num}; }
  static uint32_t hash(std::span<const Member> members);

  TerminalSets* sets_;
  bool contextual_, ambiguous_, has_json_;  // has_json_: some terminal holds rules, which have no complement
  SymbolId newline_;
  std::vector<SymbolId> order_;       // the terminals, best first
  std::vector<uint32_t> class_of_;    // (ranks,) terminals of one class can all win
  std::vector<bool> skip_;            // (terminals,)
  std::vector<bool> everywhere_;      // (terminals,) SKIP and NEVER: competes always
  regex::Exprs exprs_;
  std::vector<regex::ExprId> exprs_of_;  // (ranks,)
  std::vector<uint8_t> classes_;      // (256,) class of each byte
  std::vector<uint8_t> class_bytes_;  // (classes,) one byte of each
  std::vector<uint8_t> by_class_;     // (256,) the bytes, class by class
  std::vector<uint32_t> class_first_;  // (classes + 1,) in by_class_
  std::vector<Member> rest_;          // scratch

  std::vector<Member> members_;
  std::vector<StateInfo> states_;
  std::vector<State> rows_;    // (states, 256)
  State* row_data_;            // of rows_
  std::vector<SetId> reach_;   // (states,)
  std::vector<State> capped_;  // (states,) UNKNOWN if never asked for
  std::vector<State> starts_;  // (sets,) of a contextual lexer
  regex::InternTable table_;
  std::vector<uint8_t> hints_;    // (ranks,) a byte after which the terminal was found to win
  std::vector<Derived> derived_;  // the newest for each hash
  State start_ = DEAD;
  const char* error_ = nullptr;
};

}  // namespace aici::grammar
