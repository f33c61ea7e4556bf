// Intersections and complements. Simplification here is modest. Emptiness is decided at construction: a search through
// the derivatives looks for a derivative that matches the empty string, and caches the facts learnt.
#include <algorithm>
#include <iterator>

#include "aici/regex/expr.hpp"

namespace aici::regex {
namespace {

// Where a text is looked for breadth first: a count above the first is seldom reached, and depth first it would be.
constexpr uint32_t HIGH_COUNT = 200;
constexpr size_t MAX_NEAR = 600;  // expressions
// Limits of a search, in derivatives and in members of alternations made for derivatives (about 0.1 µs each); and the
// limit of an arena during a search, in weight.
constexpr uint32_t MAX_SEARCH = 100000;
constexpr uint64_t MAX_ALT_TERMS = 2'000'000;
constexpr size_t MAX_WEIGHT = 150000;  // as regex::Dfa::MAX_EXPRS: anything larger could not be walked

}  // namespace

ExprId Exprs::both(std::vector<ExprId> members) {
  // A complement of finitely many texts is soon left behind: then what is left of a rule is not empty.
  auto is_finite_complement = [this](ExprId e) { return e == all_ || (nodes_[e].kind == Kind::Not && nodes_[nodes_[e].a].is_finite); };
  auto has_rules = [this](ExprId e) { return nodes_[e].has_rules; };
  if (std::ranges::any_of(members, has_rules) && std::ranges::count_if(members, is_finite_complement) + 1 < std::ssize(members))
    return fail("an intersection holds a recursive rule"), NOTHING;
  std::vector<ExprId> prefix;
  while (strip_common_byte(members, prefix)) {}
  ExprId result = if_not_empty(meet(static_cast<std::vector<ExprId>&&>(members)));
  for (size_t i = prefix.size(); i-- > 0;) result = concat(prefix[i], result);
  return result;
}

ExprId Exprs::complement(ExprId e) {
  if (nodes_[e].has_rules) return fail("a complement holds a recursive rule"), NOTHING;
  return if_not_empty(negation(e));
}

// x y & z, if all bytes of the set x lead to the same derivative of z, is x (y & dz): words meet patterns at once, and
// states keep the form head . tail.
bool Exprs::strip_common_byte(std::vector<ExprId>& members, std::vector<ExprId>& prefix) {
  if (members.size() < 2 || error_) return false;
  bool any = false;
  ByteSet common = ByteSet::all();
  for (ExprId e : members) {
    if (e == NOTHING) return false;
    const Node& node = nodes_[e];
    const Node& head = node.kind == Kind::Concat ? nodes_[node.a] : node;
    if (head.kind == Kind::Bytes) common = common & sets_[head.a], any = true;
  }
  if (!any) return false;
  if (common.empty()) return members = {NOTHING}, false;
  std::vector<ExprId> after;
  ByteSet all_alike = ByteSet::all(), alike;
  for (ExprId e : members) {
    after.push_back(derive(e, common.first(), alike));
    all_alike = all_alike & alike;
  }
  if ((common & all_alike) != common) return false;
  prefix.push_back(bytes(common));
  members.swap(after);
  return true;
}

// The intersection, simplified; may still turn out to be empty.
ExprId Exprs::meet(std::vector<ExprId> candidates) {
  std::vector<ExprId> flat;
  bool with_empty = false, all_nullable = true;
  for (ExprId e : candidates) {
    const Node& node = nodes_[e];
    if (e == NOTHING) return NOTHING;
    if (e == EMPTY) with_empty = true;
    if (e == all_) continue;
    all_nullable &= nullable(e);
    if (node.kind == Kind::And)
      flat.insert(flat.end(), members(node).begin(), members(node).end());
    else
      flat.push_back(e);
  }
  if (with_empty) return all_nullable ? EMPTY : NOTHING;
  for (ExprId e : flat)
    if (nodes_[e].kind == Kind::Not && std::ranges::find(flat, nodes_[e].a) != flat.end()) return NOTHING;
  return intern_members(Kind::And, flat);
}

ExprId Exprs::negation(ExprId e) {
  if (e == NOTHING) return all_;
  if (e == all_) return NOTHING;
  const Node& node = nodes_[e];
  if (node.kind == Kind::Not) return node.a;
  return add({Kind::Not, !node.nullable, false, e, 0, 0});
}

Exprs::Emptiness& Exprs::emptiness(ExprId e) {
  if (emptiness_.size() <= e) emptiness_.resize(nodes_.size(), Emptiness::Unknown);
  return emptiness_[e];
}

bool Exprs::is_decided(ExprId e) const {
  Kind kind = nodes_[e].kind;
  return kind != Kind::And && kind != Kind::Not;
}

ExprId Exprs::if_not_empty(ExprId e) {
  if (is_decided(e) || error_) return e;
  if (emptiness(e) == Emptiness::Unknown && !is_empty_uncounted(e)) search(e);
  return emptiness(e) == Emptiness::Empty ? NOTHING : e;
}

// Counts multiply the states of a search and seldom decide: if nothing is left without counts, nothing is left.
bool Exprs::is_empty_uncounted(ExprId e) {
  if (nodes_[e].kind != Kind::And) return false;
  std::vector<ExprId> rest;
  for (uint32_t i = 0; i < nodes_[e].b; i++) {
    ExprId member = members_[nodes_[e].a + i];
    std::optional<Counted> counted = as_counted(member);
    if (!counted || (counted->min == 0 && counted->max == UNBOUNDED)) rest.push_back(member);
  }
  if (rest.size() < 2 || rest.size() == nodes_[e].b) return false;
  if (if_not_empty(meet(static_cast<std::vector<ExprId>&&>(rest))) != NOTHING) return false;
  emptiness(e) = Emptiness::Empty;
  return true;
}

// One step of a search. Parts are decided as soon as they are made; the current expression is being decided.
ExprId Exprs::derive_undecided(ExprId e, uint8_t byte, ByteSet& alike) {
  Node node = nodes_[e];
  if (node.kind == Kind::Not) return negation(derive(node.a, byte, alike));
  std::vector<ExprId> all;
  alike = ByteSet::all();
  for (uint32_t i = 0; i < node.b; i++) {
    ByteSet of_member;
    all.push_back(derive(members_[node.a + i], byte, of_member));
    alike = alike & of_member;
    if (all.back() == NOTHING) {
      alike = of_member;
      return NOTHING;
    }
  }
  return meet(static_cast<std::vector<ExprId>&&>(all));
}

// Depth first, because then everything on the way to a text is known to be non-empty, and later derivatives need no
// search. An expression left entirely, with nothing open, is empty; so is everything seen if no text is found.
void Exprs::search(ExprId start) {
  auto is_high = [this](ExprId member) {
    std::optional<Counted> counted = as_counted(member);
    return counted && counted->max != UNBOUNDED && counted->max >= HIGH_COUNT;
  };
  if (nodes_[start].kind == Kind::And && !nullable(start) && std::ranges::any_of(members(nodes_[start]), is_high)) {
    // Breadth first among the nearest expressions; everything on the way to a text is known to be non-empty, too.
    struct Near {
      ExprId e;
      size_t from;
    };
    std::vector<Near> near{{start, 0}};
    for (size_t at = 0; at < near.size() && near.size() < MAX_NEAR && !error_; at++) {
      ByteSet alike;
      for (ByteSet todo = ByteSet::all(); !todo.empty(); todo = todo & ~alike) {
        ExprId next = derive_undecided(near[at].e, todo.first(), alike);
        if (next == NOTHING || (!is_decided(next) && emptiness(next) == Emptiness::Empty)) continue;
        if (is_decided(next) || nullable(next) || emptiness(next) == Emptiness::NotEmpty) {
          for (size_t on = at; on > 0; on = near[on].from) emptiness(near[on].e) = Emptiness::NotEmpty;
          emptiness(start) = Emptiness::NotEmpty;
          return;
        }
        if (std::ranges::find(near, next, &Near::e) == near.end()) near.push_back({next, at});
      }
    }
  }
  struct Step {
    ExprId e;
    ByteSet todo;
    bool all_empty;
  };
  std::vector<Step> path;
  std::vector<ExprId> visited;
  bool found = false;
  uint32_t number = ++last_search_;
  auto enter = [&](ExprId e) {
    found = is_decided(e) || nullable(e) || emptiness(e) == Emptiness::NotEmpty;
    if (is_decided(e)) return;
    if (seen_in_.size() <= e) seen_in_.resize(nodes_.size());
    seen_in_[e] = number;
    path.push_back({e, ByteSet::all(), true});
    visited.push_back(e);
  };
  enter(start);
  uint64_t last_term = alt_terms_ + MAX_ALT_TERMS;
  for (uint32_t work = 0; !found && !path.empty(); work++) {
    if (work > MAX_SEARCH || alt_terms_ > last_term || weight() > MAX_WEIGHT)
      fail("an intersection or complement is too complex to see whether anything is left of it");
    if (error_) break;
    Step& step = path.back();
    if (step.todo.empty()) {
      bool empty = step.all_empty;
      if (empty) emptiness(step.e) = Emptiness::Empty;
      path.pop_back();
      if (!empty && !path.empty()) path.back().all_empty = false;
      continue;
    }
    ByteSet alike;
    ExprId next = derive_undecided(step.e, step.todo.first(), alike);
    step.todo = step.todo & ~alike;
    if (next == NOTHING || (!is_decided(next) && emptiness(next) == Emptiness::Empty) || is_empty_uncounted(next)) continue;
    if (next < seen_in_.size() && seen_in_[next] == number)
      step.all_empty = false;
    else
      enter(next);
  }
  if (found) {
    for (const Step& step : path) emptiness(step.e) = Emptiness::NotEmpty;
  } else if (!error_) {
    for (ExprId e : visited) emptiness(e) = Emptiness::Empty;
  }
}

}  // namespace aici::regex
