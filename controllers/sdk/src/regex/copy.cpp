// Forgetting in an automaton: a new arena with only the expressions in use.
#include "aici/regex/expr.hpp"

namespace aici::regex {

// Parts are always older than the whole, so one pass down finds all parts. Only the body of a rule may be younger than
// the rule, which requires another pass.
std::vector<bool> Exprs::in_use(std::span<const ExprId> roots) const {
  std::vector<bool> used(nodes_.size());
  for (ExprId root : roots) used[root] = true;
  for (bool again = true; again;) {
    again = false;
    for (size_t id = nodes_.size(); id-- > 0;) {
      if (!used[id]) continue;
      const Node& node = nodes_[id];
      if (has_members(node)) {
        for (ExprId member : members(node)) used[member] = true;
      } else if (node.kind == Kind::Concat) {
        used[node.a] = used[node.b] = true;
      } else if (node.kind == Kind::Repeat || node.kind == Kind::Not) {
        used[node.a] = true;
      } else if (node.kind == Kind::Unique) {
        const Unique& unique = uniques_[node.a];
        const UniqueItems& items = unique_items_[unique.items];
        for (ExprId part : {unique.rest, unique.said, items.space, items.comma, items.colon, items.end}) used[part] = true;
        for (const UniqueItems::Step& step : items.steps)
          for (const UniqueItems::Way& way : step.ways) used[way.item] = true;
      } else if (node.kind == Kind::Rule) {
        ExprId body = bodies_[node.a];
        again |= !used[body] && body > id;
        used[body] = true;
      } else if (is_part_of_entries(node.kind)) {
        for (ExprId part : parts(entry_states_[node.a])) used[part] = true;
      }
    }
  }
  return used;
}

// Copied in the order of their numbers. So the order is preserved, also among members of alternations.
Exprs Exprs::copy_of(std::span<ExprId> roots) const {
  std::vector<bool> used = in_use(roots);
  std::vector<ExprId> moved(nodes_.size(), NOTHING);
  std::vector<ExprId> rules;
  std::vector<uint32_t> lists(entry_lists_.size(), UINT32_MAX);  // numbers in the copy
  Exprs copy;
  for (ExprId id = 0; id < nodes_.size(); id++) {
    if (!used[id]) continue;
    Node node = nodes_[id];
    if (node.kind == Kind::Bytes) {
      moved[id] = copy.bytes(sets_[node.a]);
    } else if (node.kind == Kind::Digits) {
      moved[id] = copy.add_digits(digits_[node.a]);
    } else if (node.kind == Kind::Unique) {
      moved[id] = copy.copied_unique(*this, uniques_[node.a], moved);
    } else if (node.kind == Kind::Rule) {
      moved[id] = copy.rule();
      rules.push_back(id);
    } else {
      if (has_members(node)) {
        node.a = static_cast<uint32_t>(copy.members_.size());
        for (ExprId member : members(nodes_[id])) copy.members_.push_back(moved[member]);
      } else if (node.kind == Kind::Concat) {
        node.a = moved[node.a], node.b = moved[node.b];
      } else if (node.kind == Kind::Repeat || node.kind == Kind::Not) {
        node.a = moved[node.a];
      } else if (is_part_of_entries(node.kind)) {
        node.a = copy.copied(entry_states_[node.a], *this, moved, lists);
      }
      moved[id] = copy.add(node);
    }
    if (id < emptiness_.size() && emptiness_[id] == Emptiness::NotEmpty) copy.emptiness(moved[id]) = Emptiness::NotEmpty;
  }
  for (ExprId rule : rules) copy.bodies_[copy.nodes_[moved[rule]].a] = moved[bodies_[nodes_[rule].a]];
  for (ExprId& root : roots) root = moved[root];
  return copy;
}

}  // namespace aici::regex
