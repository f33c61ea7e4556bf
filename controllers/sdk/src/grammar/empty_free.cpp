#include "empty_free.hpp"

#include <algorithm>

#include "symbols.hpp"

namespace aici::grammar {
namespace {

constexpr size_t MAX_OPTIONAL = 3;  // symbols of one body that may be left out: 2^n bodies are made of it

class EmptyFree {
 public:
  explicit EmptyFree(Grammar& grammar) : grammar_(grammar) {
    SymbolFacts facts(grammar);
    for (SymbolId symbol = 0; symbol < grammar.num_symbols(); symbol++) nullable_.push_back(facts.nullable(symbol));
  }

  bool run() {
    bool empty_sentence = nullable_[grammar_.productions[0].body[0]];
    split_bodies();
    leave_out();
    drop_without_productions();
    join_circles();
    return empty_sentence;
  }

 private:
  // A body with many optional symbols becomes a chain of rules with few.
  void split_bodies() {
    for (size_t p = 1; p < grammar_.productions.size(); p++) {
      size_t num_optional = 0, at = 0;
      std::vector<SymbolId>& body = grammar_.productions[p].body;
      while (at < body.size() && num_optional < MAX_OPTIONAL) num_optional += nullable_[body[at++]];
      if (std::none_of(body.begin() + static_cast<ptrdiff_t>(at), body.end(), [&](SymbolId s) { return nullable_[s]; })) continue;
      auto rest = static_cast<SymbolId>(grammar_.num_symbols());
      Production tail{rest, {body.begin() + static_cast<ptrdiff_t>(at), body.end()}, grammar_.productions[p].precedence,
                      grammar_.productions[p].place};
      body.resize(at);
      body.push_back(rest);
      nullable_.push_back(std::all_of(tail.body.begin(), tail.body.end(), [&](SymbolId s) { return nullable_[s]; }));
      size_t head = grammar_.productions[p].head - grammar_.terminals.size();
      grammar_.nonterminals.push_back({Text(grammar_.nonterminals[head].name), grammar_.nonterminals[head].place});
      grammar_.productions.push_back(static_cast<Production&&>(tail));  // split in its turn
    }
  }

  // Each production with and without each of its optional symbols.
  void leave_out() {
    std::vector<Production> all;
    all.swap(grammar_.productions);
    by_head_.assign(grammar_.num_symbols(), {});
    for (Production& production : all) {
      size_t num_optional = 0;
      if (&production != &all[0]) num_optional = optional(production.body);
      for (uint32_t without = 0; without < uint32_t{1} << num_optional; without++) {
        Production made{production.head, {}, production.precedence, production.place};
        uint32_t bit = 1;
        for (SymbolId symbol : production.body) {
          bool leave = num_optional && nullable_[symbol] && (without & bit);
          if (num_optional && nullable_[symbol]) bit <<= 1;
          if (!leave) made.body.push_back(symbol);
        }
        add(static_cast<Production&&>(made));
      }
    }
  }

  size_t optional(const std::vector<SymbolId>& body) const {
    return static_cast<size_t>(std::count_if(body.begin(), body.end(), [&](SymbolId s) { return nullable_[s]; }));
  }

  void add(Production&& made) {
    if (made.body.empty() || (made.body.size() == 1 && made.body[0] == made.head)) return;
    for (ProductionId known : by_head_[made.head])
      if (grammar_.productions[known].body == made.body) return;
    by_head_[made.head].push_back(static_cast<ProductionId>(grammar_.productions.size()));
    grammar_.productions.push_back(static_cast<Production&&>(made));
  }

  // A rule that was only empty has no production left, and whatever names the rule goes with it.
  void drop_without_productions() {
    for (bool changed = true; changed;) {
      std::vector<bool> has_one(grammar_.num_symbols(), false);
      for (SymbolId t = 0; t < grammar_.terminals.size(); t++) has_one[t] = true;
      for (const Production& production : grammar_.productions) has_one[production.head] = true;
      size_t before = grammar_.productions.size();
      std::vector<Production> kept;
      for (Production& production : grammar_.productions) {
        bool ends = kept.empty() || std::all_of(production.body.begin(), production.body.end(), [&](SymbolId s) { return has_one[s]; });
        if (ends) kept.push_back(static_cast<Production&&>(production));
      }
      grammar_.productions = static_cast<std::vector<Production>&&>(kept);
      changed = grammar_.productions.size() < before;
    }
  }

  // Rules that derive each other through productions of one symbol are one rule.
  void join_circles() {
    size_t num_terminals = grammar_.terminals.size(), num = grammar_.nonterminals.size();
    std::vector<std::vector<bool>> reaches(num, std::vector<bool>());
    std::vector<SymbolId> joined(grammar_.num_symbols());
    for (SymbolId s = 0; s < joined.size(); s++) joined[s] = s;
    bool any = false;
    by_head_.assign(grammar_.num_symbols(), {});
    for (ProductionId p = 0; p < grammar_.productions.size(); p++) by_head_[grammar_.productions[p].head].push_back(p);
    for (size_t n = 0; n < num; n++) reaches[n] = reached_by_units(static_cast<SymbolId>(n + num_terminals));
    for (size_t n = 0; n < num; n++)
      for (size_t m = 0; m < n && joined[n + num_terminals] == n + num_terminals; m++)
        if (!reaches[n].empty() && !reaches[m].empty() && reaches[n][m] && reaches[m][n])
          joined[n + num_terminals] = joined[m + num_terminals], any = true;
    if (!any) return;
    std::vector<Production> all;
    all.swap(grammar_.productions);
    by_head_.assign(grammar_.num_symbols(), {});
    for (Production& production : all) {
      production.head = joined[production.head];
      for (SymbolId& symbol : production.body) symbol = joined[symbol];
      add(static_cast<Production&&>(production));
    }
  }

  // Empty if the rule has no production of one rule.
  std::vector<bool> reached_by_units(SymbolId from) const {
    std::vector<bool> reached;
    std::vector<SymbolId> todo{from};
    while (!todo.empty()) {
      SymbolId head = todo.back();
      todo.pop_back();
      for (ProductionId p : by_head_[head]) {
        const Production& production = grammar_.productions[p];
        if (production.body.size() != 1 || grammar_.is_terminal(production.body[0])) continue;
        if (reached.empty()) reached.resize(grammar_.nonterminals.size());
        size_t n = production.body[0] - grammar_.terminals.size();
        if (!reached[n]) reached[n] = true, todo.push_back(production.body[0]);
      }
    }
    return reached;
  }

  Grammar& grammar_;
  std::vector<bool> nullable_;                       // (symbols,)
  std::vector<std::vector<ProductionId>> by_head_;  // (symbols,)
};

}  // namespace

bool remove_empty_productions(Grammar& grammar) { return EmptyFree(grammar).run(); }

}  // namespace aici::grammar
