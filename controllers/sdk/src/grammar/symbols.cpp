#include "symbols.hpp"

#include <algorithm>

namespace aici::grammar {

SymbolFacts::SymbolFacts(const Grammar& grammar)
    : num_words_((grammar.terminals.size() + 63) / 64), num_terminals_(static_cast<SymbolId>(grammar.terminals.size())) {
  sort_productions(grammar);
  find_shortest(grammar);
  find_first(grammar);
}

void SymbolFacts::sort_productions(const Grammar& grammar) {
  starts_.assign(grammar.nonterminals.size() + 1, 0);
  for (const Production& production : grammar.productions) starts_[production.head - num_terminals_ + 1]++;
  for (size_t n = 1; n < starts_.size(); n++) starts_[n] += starts_[n - 1];
  std::vector<uint32_t> at = starts_;
  sorted_.resize(grammar.productions.size());
  for (ProductionId p = 0; p < grammar.productions.size(); p++) sorted_[at[grammar.productions[p].head - num_terminals_]++] = p;
}

// Until nothing changes: a rule is as short as its shortest alternative. A production is replaced only by a shorter
// one, so following the productions always ends.
void SymbolFacts::find_shortest(const Grammar& grammar) {
  shortest_.assign(grammar.num_symbols(), NEVER);
  best_.assign(grammar.nonterminals.size(), 0);
  for (SymbolId terminal = 0; terminal < num_terminals_; terminal++) shortest_[terminal] = 1;
  for (bool changed = true; changed;) {
    changed = false;
    for (ProductionId p = 0; p < grammar.productions.size(); p++) {
      const Production& production = grammar.productions[p];
      uint64_t len = 0;
      bool ends = true;
      for (SymbolId symbol : production.body) ends = ends && shortest_[symbol] != NEVER, len += shortest_[symbol];
      len = ends ? std::min<uint64_t>(len, NEVER - 1) : NEVER;  // short forms can be long: 32 rules that double
      if (len >= shortest_[production.head]) continue;
      shortest_[production.head] = static_cast<uint32_t>(len);
      best_[production.head - num_terminals_] = p;
      changed = true;
    }
  }
}

void SymbolFacts::find_first(const Grammar& grammar) {
  first_.assign(grammar.num_symbols() * num_words_, 0);
  for (SymbolId terminal = 0; terminal < num_terminals_; terminal++) add(&first_[terminal * num_words_], terminal);
  for (bool changed = true; changed;) {
    changed = false;
    for (const Production& production : grammar.productions)
      for (SymbolId symbol : production.body) {
        changed |= unite(&first_[production.head * num_words_], first(symbol), num_words_);
        if (!nullable(symbol)) break;
      }
  }
}

}  // namespace aici::grammar
