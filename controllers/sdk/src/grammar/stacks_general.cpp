#include "stacks_general.hpp"

#include <algorithm>

#include "aici/sort.hpp"

namespace aici::grammar {
namespace {

uint32_t hash_of(uint32_t seed, std::span<const uint32_t> words) {
  uint32_t hash = seed * 0x85EBCA6Bu;
  for (uint32_t word : words) hash = (hash ^ word) * 0x9E3779B1u, hash ^= hash >> 15;
  return hash;
}

void sort_unique(std::vector<uint32_t>& ids) {
  if (ids.size() < 2) return;
  sort(ids, [](uint32_t x, uint32_t y) { return x < y; });
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

}  // namespace

GeneralStacks::GeneralStacks(const Grammar& grammar, LrTable table, TerminalSets& sets)
    : Stacks(grammar, static_cast<LrTable&&>(table), sets) {
  std::vector<NodeId> start{push(0, {})};
  stack_of(start);
}

GeneralStacks::NodeId GeneralStacks::push(LrState state, std::span<const NodeId> parents) {
  if (nodes_.size() >= MAX_STACKS || parents_.size() + parents.size() > MAX_PARENTS) {
    error_ = TOO_MANY;
    return 0;
  }
  return node_table_.find_or_add(
      hash_of(state, parents),
      [&](uint32_t id) { return nodes_[id].state == state && std::ranges::equal(this->parents(id), parents); },
      [&] {
        nodes_.push_back({state, false, TerminalSets::UNKNOWN, {static_cast<uint32_t>(parents_.size()), static_cast<uint32_t>(parents.size())}});
        parents_.insert(parents_.end(), parents.begin(), parents.end());
        return static_cast<uint32_t>(nodes_.size() - 1);
      });
}

// One node for several of the same state.
GeneralStacks::NodeId GeneralStacks::joined(LrState state, std::span<const NodeId> nodes) {
  if (nodes.size() == 1) return nodes[0];
  std::vector<NodeId> all;
  for (NodeId node : nodes) all.insert(all.end(), parents(node).begin(), parents(node).end());
  sort_unique(all);
  return push(state, all);
}

// Reorders `tops`.
StackId GeneralStacks::stack_of(std::vector<NodeId>& tops) {
  if (tops.size() > 1) sort(tops, [&](NodeId x, NodeId y) { return nodes_[x].state != nodes_[y].state ? nodes_[x].state < nodes_[y].state : x < y; });
  std::vector<NodeId> wanted;
  for (size_t first = 0, last; first < tops.size(); first = last) {
    LrState state = nodes_[tops[first]].state;
    for (last = first + 1; last < tops.size() && nodes_[tops[last]].state == state;) last++;
    wanted.push_back(joined(state, {&tops[first], last - first}));
  }
  if (error_ || tops_.size() >= MAX_STACKS) return error_ = TOO_MANY, EMPTY;
  return stack_table_.find_or_add(
      hash_of(0, wanted), [&](uint32_t id) { return std::ranges::equal(this->tops(id), wanted); },
      [&] {
        tops_.push_back({static_cast<uint32_t>(top_nodes_.size()), static_cast<uint32_t>(wanted.size())});
        top_nodes_.insert(top_nodes_.end(), wanted.begin(), wanted.end());
        return add_stack();
      });
}

// Adds the nodes after the reduction, one for each way down.
void GeneralStacks::reduce(NodeId node, const Reduction& reduction, std::vector<NodeId>& after) {
  level_.assign(1, node);
  for (uint32_t length = reduction.length; length > 0; length--) {
    below_.clear();
    for (NodeId at : level_) below_.insert(below_.end(), parents(at).begin(), parents(at).end());
    sort_unique(below_);
    level_.swap(below_);
  }
  for (NodeId base : level_) after.push_back(push(table_.go_to(nodes_[base].state, reduction.head), {&base, 1}));
}

void GeneralStacks::find_viable(StackId stack) {
  if (tops_[stack].num == 1) {
    NodeId node = tops(stack)[0];
    if (nodes_[node].viable == TerminalSets::UNKNOWN) find_node_viable(node);
    facts_[stack].can_end = nodes_[node].can_end;
    facts_[stack].viable = error_ ? rows_[0].shifts : nodes_[node].viable;
    return;
  }
  TerminalSet set(table_.num_terminals);
  set.add(END);
  bool can_end = false;
  for (uint32_t i = 0; i < tops_[stack].num && !error_; i++) {
    NodeId node = tops(stack)[i];
    if (nodes_[node].viable == TerminalSets::UNKNOWN) find_node_viable(node);
    if (error_) break;
    sets_->add_to(set, nodes_[node].viable);
    can_end |= nodes_[node].can_end;
  }
  facts_[stack].can_end = can_end;
  facts_[stack].viable = error_ ? rows_[0].shifts : sets_->id_of(set);
}

// As LrStacks::find_viable does: the nodes after reductions come first.
void GeneralStacks::find_node_viable(NodeId node) {
  std::vector<NodeId> todo{node};
  while (!todo.empty() && !error_) {
    NodeId at = todo.back();
    size_t before = todo.size();
    for (const Reduction& reduction : reductions(rows_[nodes_[at].state])) {
      after_.clear();
      reduce(at, reduction, after_);
      for (NodeId after : after_)
        if (nodes_[after].viable == TerminalSets::UNKNOWN) todo.push_back(after);
    }
    if (todo.size() > before) continue;
    if (nodes_[at].viable == TerminalSets::UNKNOWN) set_node_viable(at);
    todo.pop_back();
  }
}

void GeneralStacks::set_node_viable(NodeId node) {
  const Row& row = rows_[nodes_[node].state];
  TerminalSet set(table_.num_terminals);
  set.add(END);
  sets_->add_to(set, row.shifts);
  bool can_end = row.accepts;
  for (const Reduction& reduction : reductions(row)) {
    after_.clear();
    reduce(node, reduction, after_);
    for (NodeId after : after_) {
      if (error_) return;
      sets_->add_common_to(set, nodes_[after].viable, reduction.lookaheads);
      can_end |= sets_->has(reduction.lookaheads, END) && nodes_[after].can_end;
    }
  }
  nodes_[node].can_end = can_end;
  nodes_[node].viable = sets_->id_of(set);
}

// The nodes after all reductions before the terminal, and after none.
std::vector<GeneralStacks::NodeId> GeneralStacks::nodes_before(StackId stack, SymbolId terminal) {
  std::vector<NodeId> found(tops(stack).begin(), tops(stack).end());
  uint32_t round = ++last_shift_;
  auto is_new = [&](NodeId node) {
    if (seen_in_.size() <= node) seen_in_.resize(nodes_.size());
    return seen_in_[node] != round && (seen_in_[node] = round, true);
  };
  for (NodeId node : found) is_new(node);
  for (size_t i = 0; i < found.size() && !error_; i++)
    for (const Reduction& reduction : reductions(rows_[nodes_[found[i]].state])) {
      if (!sets_->has(reduction.lookaheads, terminal)) continue;
      after_.clear();
      reduce(found[i], reduction, after_);
      for (NodeId after : after_)
        if (is_new(after)) found.push_back(after);
    }
  return found;
}

StackId GeneralStacks::shift_new(StackId stack, SymbolId lexeme) {
  std::vector<NodeId> tops;
  if (!sets_->is_several(lexeme)) {
    shift_terminal(stack, lexeme, tops);
  } else {
    SetId several = sets_->several(lexeme), viable = this->viable(stack);
    if (sets_->has(several, END)) tops.assign(this->tops(stack).begin(), this->tops(stack).end());
    for (SymbolId terminal = 1; terminal < table_.num_terminals; terminal++)
      if (sets_->has(several, terminal) && sets_->has(viable, terminal)) shift_terminal(stack, terminal, tops);
  }
  return error_ ? EMPTY : stack_of(tops);
}

// The common case: one node, and one way to go on. False, and nothing is added, if there are several.
bool GeneralStacks::shift_alone(NodeId node, SymbolId terminal, std::vector<NodeId>& tops) {
  while (!error_) {
    LrState state = nodes_[node].state;
    Action action = table_.action(state, terminal);
    if (action.kind == Action::Kind::Accept || action.kind == Action::Kind::Error || is_contested(state, terminal)) return false;
    if (action.kind == Action::Kind::Shift) return tops.push_back(push(action.target, {&node, 1})), true;
    auto [head, length] = productions_[action.target];
    NodeId base = node;
    for (; length > 0; length--) {
      if (nodes_[base].parents.num != 1) return false;
      base = parents(base)[0];
    }
    node = push(table_.go_to(nodes_[base].state, head), {&base, 1});
  }
  return false;
}

bool GeneralStacks::is_contested(LrState state, SymbolId terminal) const {
  auto first = std::ranges::lower_bound(table_.extra, state, {}, &LrTable::Extra::state);
  for (; first != table_.extra.end() && first->state == state; ++first)
    if (first->terminal == terminal) return true;
  return false;
}

// Adds the nodes after the terminal.
void GeneralStacks::shift_terminal(StackId stack, SymbolId terminal, std::vector<NodeId>& tops) {
  if (tops_[stack].num == 1 && shift_alone(this->tops(stack)[0], terminal, tops)) return;
  struct Step {
    LrState to, from;
    NodeId node;
  };
  std::vector<Step> steps;
  for (NodeId node : nodes_before(stack, terminal)) {
    Action action = table_.action(nodes_[node].state, terminal);
    if (action.kind == Action::Kind::Shift) steps.push_back({action.target, nodes_[node].state, node});
  }
  if (steps.empty() && !error_) error_ = "internal error: a terminal that is not viable was shifted";
  if (error_) return;
  sort(steps, [](const Step& x, const Step& y) {
    return x.to != y.to ? x.to < y.to : x.from != y.from ? x.from < y.from : x.node < y.node;
  });
  std::vector<NodeId> below, same;
  for (size_t i = 0; i < steps.size(); i++) {
    same.push_back(steps[i].node);
    bool last = i + 1 == steps.size();
    if (!last && steps[i + 1].to == steps[i].to && steps[i + 1].from == steps[i].from) continue;
    below.push_back(joined(steps[i].from, same));
    same.clear();
    if (!last && steps[i + 1].to == steps[i].to) continue;
    sort_unique(below);
    tops.push_back(push(steps[i].to, below));
    below.clear();
  }
}

// Parents are always older than children, so one pass down marks and one pass up copies.
void GeneralStacks::compact(std::span<StackId> live) {
  constexpr NodeId UNWANTED = 0, WANTED = 1;
  std::vector<StackId> kept(live.begin(), live.end());
  kept.push_back(EMPTY);
  sort_unique(kept);
  std::vector<NodeId> moved(nodes_.size(), UNWANTED);
  for (StackId stack : kept)
    for (NodeId node : tops(stack)) moved[node] = WANTED;
  for (NodeId node = static_cast<NodeId>(nodes_.size()); node-- > 0;)
    if (moved[node] == WANTED)
      for (NodeId parent : parents(node)) moved[parent] = WANTED;

  std::vector<Node> nodes;
  std::vector<NodeId> all_parents, all_tops;
  nodes.swap(nodes_), all_parents.swap(parents_), all_tops.swap(top_nodes_);
  node_table_ = {}, stack_table_ = {};
  for (NodeId node = 0; node < nodes.size(); node++) {
    if (moved[node] != WANTED) continue;
    std::vector<NodeId> parents;
    for (uint32_t i = 0; i < nodes[node].parents.num; i++) parents.push_back(moved[all_parents[nodes[node].parents.first + i]]);
    moved[node] = push(nodes[node].state, parents);
    nodes_.back().can_end = nodes[node].can_end, nodes_.back().viable = nodes[node].viable;
  }
  std::vector<Range> ranges;
  std::vector<Fact> facts;
  ranges.swap(tops_), facts.swap(facts_);
  std::vector<StackId> renumbered;  // (kept,)
  for (StackId stack : kept) {
    std::vector<NodeId> tops;
    for (uint32_t i = 0; i < ranges[stack].num; i++) tops.push_back(moved[all_tops[ranges[stack].first + i]]);
    renumbered.push_back(stack_of(tops));
    facts_.back() = facts[stack];
  }
  for (StackId& stack : live) stack = renumbered[static_cast<size_t>(std::ranges::lower_bound(kept, stack) - kept.begin())];
  seen_in_.clear();
  node_crowd_ = std::max(nodes_.size() * 2, MIN_CROWD);
  forget_shifts();
}

}  // namespace aici::grammar
