// Rules: expressions with a name, which may be recursive.
#include <algorithm>

#include "aici/regex/expr.hpp"

namespace aici::regex {

ExprId Exprs::rule() {
  bodies_.push_back(NOTHING);
  return add({Kind::Rule, false, true, static_cast<uint32_t>(bodies_.size() - 1), 0, 0});
}

void Exprs::define(ExprId rule, ExprId body) {
  if (nullable(body)) return fail("a rule matches the empty string");
  bodies_[nodes_[rule].a] = body;
}

ExprId Exprs::derive_rule(const Node& node, uint8_t byte) {
  rule_open_.resize(bodies_.size());
  if (rule_open_[node.a]) return fail("a rule begins with itself"), NOTHING;
  rule_open_[node.a] = 1;
  ExprId result = derive_new(bodies_[node.a], byte);
  rule_open_[node.a] = 0;
  return result;
}

// Find the nodes that match some text, taking every rule as NOTHING until a way through the rule is known. Parts are
// older than the whole, except for bodies of rules, so a pass finds everything that follows from the rules known so
// far.
std::vector<bool> Exprs::ending(const std::vector<bool>& used) const {
  std::vector<bool> ends(nodes_.size());
  for (bool changed = true; changed;) {
    changed = false;
    for (ExprId id = 0; id < nodes_.size(); id++) {
      if (!used[id] || ends[id]) continue;
      const Node& node = nodes_[id];
      bool now = id != NOTHING;
      if (node.kind == Kind::Concat) now = ends[node.a] && ends[node.b];
      if (node.kind == Kind::Repeat) now = node.b == 0 || ends[node.a];
      if (node.kind == Kind::Rule) now = ends[bodies_[node.a]];
      if (node.kind == Kind::Unique) now = ends[uniques_[node.a].rest];
      if (node.kind == Kind::Entries) now = this->ends(entry_states_[node.a], ends);
      if (node.kind == Kind::Alt) {
        now = false;
        for (ExprId member : members(node)) now |= ends[member];
      }
      ends[id] = now;
      // Only a rule can affect a node that this pass has already left behind.
      changed |= now && node.kind == Kind::Rule;
    }
    for (ExprId id = 0; id < nodes_.size() && !changed; id++)
      changed = used[id] && nodes_[id].kind == Kind::Rule && !ends[id] && ends[bodies_[nodes_[id].a]];
  }
  return ends;
}

ExprId Exprs::settle(ExprId root) {
  if (!nodes_[root].has_rules) return root;
  std::vector<bool> used = in_use({&root, 1});
  std::vector<bool> ends = ending(used);
  bool all_end = true;
  for (ExprId id = 0; id < nodes_.size(); id++) all_end &= !used[id] || ends[id];
  if (all_end) return root;
  auto num_nodes = static_cast<ExprId>(nodes_.size());
  std::vector<ExprId> moved(num_nodes);
  for (ExprId id = 0; id < num_nodes; id++)
    if (used[id]) moved[id] = ends[id] ? rebuilt(id, moved) : NOTHING;
  for (ExprId id = 0; id < num_nodes; id++)
    if (used[id] && ends[id] && nodes_[id].kind == Kind::Rule) bodies_[nodes_[id].a] = moved[bodies_[nodes_[id].a]];
  std::vector<bool> done(entry_lists_.size());
  for (ExprId id = 0; id < num_nodes; id++) {
    if (!used[id] || nodes_[id].kind != Kind::Entries) continue;
    uint32_t number = entry_states_[nodes_[id].a].list;
    if (!done[number]) settle(entry_lists_[number], moved);
    done[number] = true;
  }
  return moved[root];
}

ExprId Exprs::rebuilt(ExprId e, const std::vector<ExprId>& moved) {
  Node node = nodes_[e];
  if (!node.has_rules) return e;
  switch (node.kind) {
    case Kind::Concat:
      return concat(moved[node.a], moved[node.b]);
    case Kind::Repeat:
      return repeat(moved[node.a], node.b, node.c);
    case Kind::Alt: {
      std::vector<ExprId> ways;
      for (ExprId member : members(node)) ways.push_back(moved[member]);
      return alt(static_cast<std::vector<ExprId>&&>(ways));
    }
    case Kind::Unique: {  // not begun yet
      UniqueItems items = unique_items_[uniques_[node.a].items];
      for (UniqueItems::Step& step : items.steps)
        for (UniqueItems::Way& way : step.ways) way.item = moved[way.item];
      items.min = std::max(items.min, 1u);
      return unique_items(items);
    }
    default:
      return e;
  }
}

}  // namespace aici::regex
