#include "aici/grammar/stacks.hpp"

namespace aici::grammar {
namespace {

constexpr size_t MIN_CROWD = 1 << 15;
constexpr size_t SHIFT_MEMO = 1 << 12;
constexpr const char* TOO_MANY = "the text is nested too deeply for the parser: its stacks have outgrown their bounds";

}  // namespace

Stacks::Stacks(const Grammar& grammar, LrTable table, TerminalSets& sets)
    : table_(static_cast<LrTable&&>(table)), sets_(&sets), shifted_(SHIFT_MEMO), crowd_(MIN_CROWD) {
  for (const Production& production : grammar.productions)
    productions_.push_back({production.head, static_cast<uint32_t>(production.body.size())});
  constexpr uint32_t NEW = UINT32_MAX;
  std::vector<uint32_t> slots(productions_.size(), NEW);
  std::vector<std::pair<ProductionId, TerminalSet>> found;
  for (uint32_t state = 0; state < table_.num_states; state++) {
    TerminalSet shifts(table_.num_terminals);
    bool accepts = false;
    found.clear();
    for (SymbolId terminal = 0; terminal < table_.num_terminals; terminal++) {
      Action action = table_.action(static_cast<LrState>(state), terminal);
      if (action.kind == Action::Kind::Shift) shifts.add(terminal);
      if (action.kind == Action::Kind::Accept) accepts = true;
      if (action.kind != Action::Kind::Reduce) continue;
      uint32_t& slot = slots[action.target];
      if (slot == NEW) {
        slot = static_cast<uint32_t>(found.size());
        found.push_back({action.target, TerminalSet(table_.num_terminals)});
      }
      found[slot].second.add(terminal);
    }
    rows_.push_back({sets.id_of(shifts), static_cast<uint32_t>(reductions_.size()), static_cast<uint32_t>(found.size()), accepts});
    for (const auto& [production, lookaheads] : found) {
      slots[production] = NEW;
      reductions_.push_back({productions_[production].first, productions_[production].second, sets.id_of(lookaheads)});
    }
  }
  push(EMPTY, 0);
}

uint32_t Stacks::hash(StackId parent, LrState state) {
  uint32_t hash = (parent * 0x9E3779B1u) ^ (state * 0x85EBCA6Bu);
  return hash ^ hash >> 15;
}

StackId Stacks::push(StackId parent, LrState state) {
  if (nodes_.size() >= MAX_STACKS) {
    error_ = TOO_MANY;
    return EMPTY;
  }
  return node_table_.find_or_add(
      hash(parent, state), [&](uint32_t id) { return nodes_[id].parent == parent && nodes_[id].state == state; },
      [&] {
        nodes_.push_back({parent, state, false});
        viable_.push_back(TerminalSets::UNKNOWN);
        return static_cast<uint32_t>(nodes_.size() - 1);
      });
}

StackId Stacks::reduce(StackId stack, SymbolId head, uint32_t length) {
  for (; length > 0; length--) stack = nodes_[stack].parent;
  return push(stack, table_.go_to(nodes_[stack].state, head));
}

// A terminal is viable if it can be shifted at once, or if it requires a reduction and is viable afterwards. The stacks
// after reductions come first, on an explicit list: a chain of reductions can be as long as the stack is high.
void Stacks::find_viable(StackId stack) {
  std::vector<StackId> todo{stack};
  while (!todo.empty() && !error_) {
    StackId at = todo.back();
    const Row& row = rows_[nodes_[at].state];
    size_t before = todo.size();
    for (uint32_t i = 0; i < row.num_reductions && !error_; i++) {
      const Reduction& reduction = reductions_[row.first_reduction + i];
      StackId after = reduce(at, reduction.head, reduction.length);
      if (viable_[after] == TerminalSets::UNKNOWN) todo.push_back(after);
    }
    if (todo.size() > MAX_STACKS) error_ = "the parser reduces forever: the grammar is circular";
    if (todo.size() > before) continue;
    if (viable_[at] == TerminalSets::UNKNOWN) set_viable(at, row);
    todo.pop_back();
  }
  if (error_) viable_[stack] = rows_[0].shifts;
}

void Stacks::set_viable(StackId stack, const Row& row) {
  TerminalSet set(table_.num_terminals);
  sets_->add_to(set, row.shifts);
  bool can_end = row.accepts;
  for (uint32_t i = 0; i < row.num_reductions; i++) {
    const Reduction& reduction = reductions_[row.first_reduction + i];
    StackId after = reduce(stack, reduction.head, reduction.length);
    sets_->add_common_to(set, viable_[after], reduction.lookaheads);
    can_end |= sets_->has(reduction.lookaheads, END) && nodes_[after].can_end;
  }
  set.add(END);
  nodes_[stack].can_end = can_end;
  viable_[stack] = sets_->id_of(set);
}

StackId Stacks::shift(StackId stack, SymbolId terminal) {
  Shifted& memo = shifted_[(stack * 31 + terminal) % SHIFT_MEMO];
  if (memo.from == stack && memo.terminal == terminal) return memo.to;
  StackId top = stack;
  while (!error_) {
    Action action = table_.action(nodes_[top].state, terminal);
    if (action.kind == Action::Kind::Shift) {
      memo = {stack, terminal, push(top, action.target)};
      return memo.to;
    }
    if (action.kind != Action::Kind::Reduce) error_ = "internal error: a terminal that is not viable was shifted";
    else top = reduce(top, productions_[action.target].first, productions_[action.target].second);
  }
  return EMPTY;
}

// Parents are always older than children, so one pass down marks and one pass up copies.
void Stacks::compact(std::span<StackId> live) {
  constexpr StackId WANTED = UINT32_MAX;
  std::vector<StackId> moved(nodes_.size(), EMPTY);
  for (StackId stack : live) moved[stack] = WANTED;
  for (size_t id = nodes_.size(); id-- > 0;)
    if (moved[id] == WANTED) moved[nodes_[id].parent] = WANTED;
  moved[EMPTY] = EMPTY;
  std::vector<Node> nodes;
  std::vector<SetId> viable;
  nodes.swap(nodes_), viable.swap(viable_);
  node_table_ = {};
  for (size_t id = 0; id < nodes.size(); id++) {
    if (id != EMPTY && moved[id] != WANTED) continue;
    moved[id] = push(moved[nodes[id].parent], nodes[id].state);
    nodes_.back().can_end = nodes[id].can_end;
    viable_.back() = viable[id];
  }
  for (StackId& stack : live) stack = moved[stack];
  shifted_.assign(SHIFT_MEMO, {});
  crowd_ = nodes_.size() * 2 > MIN_CROWD ? nodes_.size() * 2 : MIN_CROWD;
}

}  // namespace aici::grammar
