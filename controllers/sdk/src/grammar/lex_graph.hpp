// The whole automaton of a lexer, for questions about all states; a running lexer builds only the states that it meets.
#pragma once
#include <span>
#include <vector>

#include "aici/grammar/grammar.hpp"
#include "aici/regex/expr.hpp"
#include "symbols.hpp"

namespace aici::grammar {

// The terminals of a grammar as expressions, best first: keywords, then regexes; longer text first, then the earlier.
// Derivatives are cached, because several graphs share them.
class LexTerminals {
 public:
  explicit LexTerminals(const Grammar& grammar);

  size_t num_classes() const { return class_bytes_.size(); }
  uint8_t byte_of(size_t byte_class) const { return class_bytes_[byte_class]; }
  const std::vector<SymbolId>& order() const { return order_; }
  uint32_t class_of(size_t rank) const { return class_of_[rank]; }
  regex::ExprId expr(size_t rank) const { return of_rank_[rank]; }
  bool nullable(regex::ExprId expr) const { return exprs_.nullable(expr); }
  regex::ExprId derive(regex::ExprId expr, size_t byte_class);

 private:
  regex::Exprs exprs_;
  std::vector<SymbolId> order_;
  std::vector<uint32_t> class_of_;  // see classes_of
  std::vector<regex::ExprId> of_rank_;
  std::vector<uint8_t> class_bytes_;                 // one byte of each class, a readable one
  std::vector<std::vector<regex::ExprId>> derived_;  // (exprs, classes), empty until needed
};

// A set of classes of bytes.
struct ClassSet {
  uint64_t words[4] = {};
  bool has(size_t c) const { return words[c / 64] >> (c % 64) & 1; }
  void add(size_t c) { words[c / 64] |= uint64_t{1} << (c % 64); }
  bool unite(const ClassSet& other) { return grammar::unite(words, other.words, 4); }
};

class LexGraph {
 public:
  static constexpr uint32_t DEAD = UINT32_MAX;

  // Only terminals in `competing` take part. Check is_complete() afterwards.
  LexGraph(LexTerminals& terminals, const std::vector<SetWord>& competing, size_t max_states);
  bool is_complete() const { return complete_; }
  size_t num_states() const { return states_.size(); }

  // A terminal that the bytes read so far can still become.
  struct Member {
    uint32_t rank;
    regex::ExprId rest;
    bool wins;       // there is a text after which this is the lexeme
    ClassSet ended_by;  // the first bytes of a next lexeme that end this lexeme there
    bool operator==(const Member& other) const { return rank == other.rank && rest == other.rest; }
  };
  std::span<const Member> members(uint32_t state) const {
    return {members_.data() + states_[state].first, states_[state].num};
  }
  uint32_t winner(uint32_t state) const { return states_[state].winner; }  // a rank, or DEAD
  uint32_t next(uint32_t state, size_t byte_class) const { return edges_[state * num_classes_ + byte_class]; }
  Text text_to(uint32_t state) const;

 private:
  struct State {
    uint32_t first, num, winner, from;
    uint8_t byte;
  };
  uint32_t state_of(const std::vector<Member>& members, uint32_t from, uint8_t byte);
  void find_ends();
  bool wins_at(uint32_t state, const Member& member) const {
    uint32_t winner = states_[state].winner;
    return winner != DEAD && terminals_.class_of(member.rank) == terminals_.class_of(winner) && terminals_.nullable(member.rest);
  }

  LexTerminals& terminals_;
  size_t num_classes_;
  std::vector<State> states_;
  std::vector<Member> members_;
  std::vector<uint32_t> edges_;  // (states, classes)
  regex::InternTable table_;
  bool complete_ = false;
};

}  // namespace aici::grammar
