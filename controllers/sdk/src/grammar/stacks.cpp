#include "aici/grammar/stacks.hpp"

#include "stacks_general.hpp"
#include "stacks_indented.hpp"
#include "stacks_lr.hpp"

namespace aici::grammar {

std::unique_ptr<Stacks> Stacks::make(const Grammar& grammar, LrTable table, TerminalSets& sets) {
  std::unique_ptr<Stacks> stacks;
  if (table.general) stacks = std::make_unique<GeneralStacks>(grammar, static_cast<LrTable&&>(table), sets);
  else stacks = std::make_unique<LrStacks>(grammar, static_cast<LrTable&&>(table), sets);
  if (!grammar.indentation) return stacks;
  return std::make_unique<IndentedStacks>(grammar, static_cast<std::unique_ptr<Stacks>&&>(stacks), sets);
}

Stacks::Stacks(const Grammar& grammar, LrTable table, TerminalSets& sets)
    : table_(static_cast<LrTable&&>(table)), sets_(&sets), shifted_(SHIFT_MEMO) {
  for (const Production& production : grammar.productions)
    productions_.push_back({production.head, static_cast<uint32_t>(production.body.size())});
  constexpr uint32_t NEW = UINT32_MAX;
  std::vector<uint32_t> slots(productions_.size(), NEW);
  std::vector<std::pair<ProductionId, TerminalSet>> found;
  auto add = [&](ProductionId production, SymbolId lookahead) {
    uint32_t& slot = slots[production];
    if (slot == NEW) {
      slot = static_cast<uint32_t>(found.size());
      found.push_back({production, TerminalSet(table_.num_terminals)});
    }
    found[slot].second.add(lookahead);
  };
  size_t next_extra = 0;
  for (uint32_t state = 0; state < table_.num_states; state++) {
    TerminalSet shifts(table_.num_terminals);
    bool accepts = false;
    found.clear();
    for (SymbolId terminal = 0; terminal < table_.num_terminals; terminal++) {
      Action action = table_.action(static_cast<LrState>(state), terminal);
      if (action.kind == Action::Kind::Shift) shifts.add(terminal);
      if (action.kind == Action::Kind::Accept) accepts = true;
      if (action.kind == Action::Kind::Reduce) add(action.target, terminal);
    }
    for (; next_extra < table_.extra.size() && table_.extra[next_extra].state == state; next_extra++)
      add(table_.extra[next_extra].production, table_.extra[next_extra].terminal);
    rows_.push_back({sets.id_of(shifts), static_cast<uint32_t>(reductions_.size()), static_cast<uint32_t>(found.size()), accepts});
    for (const auto& [production, lookaheads] : found) {
      slots[production] = NEW;
      reductions_.push_back({productions_[production].first, productions_[production].second, sets.id_of(lookaheads)});
    }
  }
}

void Stacks::forget_shifts() {
  shifted_.assign(SHIFT_MEMO, {});
  crowd_ = facts_.size() * 2 > MIN_CROWD ? facts_.size() * 2 : MIN_CROWD;
}

}  // namespace aici::grammar
