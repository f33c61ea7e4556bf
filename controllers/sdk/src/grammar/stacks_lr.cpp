#include "stacks_lr.hpp"

namespace aici::grammar {

LrStacks::LrStacks(const Grammar& grammar, LrTable table, TerminalSets& sets)
    : Stacks(grammar, static_cast<LrTable&&>(table), sets) {
  push(EMPTY, 0);
}

uint32_t LrStacks::hash(StackId parent, LrState state) {
  uint32_t hash = (parent * 0x9E3779B1u) ^ (state * 0x85EBCA6Bu);
  return hash ^ hash >> 15;
}

StackId LrStacks::push(StackId parent, LrState state) {
  if (nodes_.size() >= MAX_STACKS) {
    error_ = TOO_MANY;
    return EMPTY;
  }
  return node_table_.find_or_add(
      hash(parent, state), [&](uint32_t id) { return nodes_[id].parent == parent && nodes_[id].state == state; },
      [&] {
        nodes_.push_back({parent, state});
        return add_stack();
      });
}

StackId LrStacks::reduce(StackId stack, SymbolId head, uint32_t length) {
  for (; length > 0; length--) stack = nodes_[stack].parent;
  return push(stack, table_.go_to(nodes_[stack].state, head));
}

// A terminal is viable if it can be shifted at once, or if it requires a reduction and is viable afterwards. The stacks
// after reductions come first, on an explicit list: a chain of reductions can be as long as the stack is high.
void LrStacks::find_viable(StackId stack) {
  std::vector<StackId> todo{stack};
  while (!todo.empty() && !error_) {
    StackId at = todo.back();
    const Row& row = rows_[nodes_[at].state];
    size_t before = todo.size();
    for (const Reduction& reduction : reductions(row)) {
      if (error_) break;
      StackId after = reduce(at, reduction.head, reduction.length);
      if (facts_[after].viable == TerminalSets::UNKNOWN) todo.push_back(after);
    }
    if (todo.size() > MAX_STACKS) error_ = "the parser reduces forever: the grammar is circular";
    if (todo.size() > before) continue;
    if (facts_[at].viable == TerminalSets::UNKNOWN) set_viable(at, row);
    todo.pop_back();
  }
  if (error_) facts_[stack].viable = rows_[0].shifts;
}

void LrStacks::set_viable(StackId stack, const Row& row) {
  TerminalSet set(table_.num_terminals);
  sets_->add_to(set, row.shifts);
  bool can_end = row.accepts;
  for (const Reduction& reduction : reductions(row)) {
    StackId after = reduce(stack, reduction.head, reduction.length);
    sets_->add_common_to(set, facts_[after].viable, reduction.lookaheads);
    can_end |= sets_->has(reduction.lookaheads, END) && facts_[after].can_end;
  }
  set.add(END);
  facts_[stack].can_end = can_end;
  facts_[stack].viable = sets_->id_of(set);
}

StackId LrStacks::shift_new(StackId stack, SymbolId terminal) {
  StackId top = stack;
  while (!error_) {
    Action action = table_.action(nodes_[top].state, terminal);
    if (action.kind == Action::Kind::Shift) return push(top, action.target);
    if (action.kind != Action::Kind::Reduce) error_ = "internal error: a terminal that is not viable was shifted";
    else top = reduce(top, productions_[action.target].first, productions_[action.target].second);
  }
  return EMPTY;
}

// Parents are always older than children, so one pass down marks and one pass up copies.
void LrStacks::compact(std::span<StackId> live) {
  constexpr StackId WANTED = UINT32_MAX;
  std::vector<StackId> moved(nodes_.size(), EMPTY);
  for (StackId stack : live) moved[stack] = WANTED;
  for (size_t id = nodes_.size(); id-- > 0;)
    if (moved[id] == WANTED) moved[nodes_[id].parent] = WANTED;
  moved[EMPTY] = EMPTY;
  std::vector<Node> nodes;
  std::vector<Fact> facts;
  nodes.swap(nodes_), facts.swap(facts_);
  node_table_ = {};
  for (size_t id = 0; id < nodes.size(); id++) {
    if (id != EMPTY && moved[id] != WANTED) continue;
    moved[id] = push(moved[nodes[id].parent], nodes[id].state);
    facts_.back() = facts[id];
  }
  for (StackId& stack : live) stack = moved[stack];
  forget_shifts();
}

}  // namespace aici::grammar
