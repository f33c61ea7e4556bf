// Facts about symbols: whether a symbol can be empty, which terminals can begin it, how short it can be.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "aici/grammar/grammar.hpp"

namespace aici::grammar {

// A set of terminals is `num_words()` words inside a longer array.
using SetWord = uint64_t;

inline bool has(const SetWord* set, SymbolId terminal) { return set[terminal / 64] >> (terminal % 64) & 1; }
inline void add(SetWord* set, SymbolId terminal) { set[terminal / 64] |= SetWord{1} << (terminal % 64); }

// set |= other; returns whether the set changed.
inline bool unite(SetWord* set, const SetWord* other, size_t num_words) {
  SetWord fresh = 0;
  for (size_t i = 0; i < num_words; i++) fresh |= other[i] & ~set[i], set[i] |= other[i];
  return fresh != 0;
}
inline bool meets(const SetWord* x, const SetWord* y, size_t num_words) {
  for (size_t i = 0; i < num_words; i++)
    if (x[i] & y[i]) return true;
  return false;
}

class SymbolFacts {
 public:
  static constexpr uint32_t NEVER = UINT32_MAX;

  explicit SymbolFacts(const Grammar& grammar);

  size_t num_words() const { return num_words_; }
  bool nullable(SymbolId symbol) const { return shortest_len(symbol) == 0; }
  const SetWord* first(SymbolId symbol) const { return &first_[symbol * num_words_]; }
  std::span<const ProductionId> productions_of(SymbolId nonterminal) const {
    size_t n = nonterminal - num_terminals_;
    return {sorted_.data() + starts_[n], starts_[n + 1] - starts_[n]};
  }
  // The number of terminals in the shortest text; NEVER for a rule that cannot end.
  uint32_t shortest_len(SymbolId symbol) const { return shortest_[symbol]; }
  // The production of this shortest text.
  ProductionId shortest_production(SymbolId nonterminal) const { return best_[nonterminal - num_terminals_]; }

 private:
  void sort_productions(const Grammar& grammar);
  void find_shortest(const Grammar& grammar);
  void find_first(const Grammar& grammar);

  size_t num_words_;
  SymbolId num_terminals_;
  std::vector<ProductionId> sorted_;  // by head
  std::vector<uint32_t> starts_;      // (nonterminals + 1,) into sorted_
  std::vector<uint32_t> shortest_;    // (symbols,)
  std::vector<ProductionId> best_;    // (nonterminals,)
  std::vector<SetWord> first_;        // (symbols, words)
};

}  // namespace aici::grammar
