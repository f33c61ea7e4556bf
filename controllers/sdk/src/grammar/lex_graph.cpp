#include "lex_graph.hpp"

#include <algorithm>

#include "aici/sort.hpp"
#include "sample.hpp"
#include "terminals.hpp"

namespace aici::grammar {

LexTerminals::LexTerminals(const Grammar& grammar) {
  const std::vector<Terminal>& all = grammar.terminals;
  for (SymbolId id = 1; id < all.size(); id++) order_.push_back(id);
  sort(order_, [&](SymbolId x, SymbolId y) { return wins_over(grammar, x, y); });
  class_of_ = classes_of(grammar, order_);
  for (SymbolId id : order_) of_rank_.push_back(terminal_expr(all[id], exprs_));
  class_bytes_ = readable_bytes(exprs_.byte_classes());
}

regex::ExprId LexTerminals::derive(regex::ExprId expr, size_t byte_class) {
  constexpr regex::ExprId UNKNOWN = UINT32_MAX;
  if (derived_.size() <= expr) derived_.resize(expr + 1);
  if (derived_[expr].empty()) derived_[expr].assign(num_classes(), UNKNOWN);
  if (derived_[expr][byte_class] == UNKNOWN) derived_[expr][byte_class] = exprs_.derive(expr, class_bytes_[byte_class]);
  return derived_[expr][byte_class];
}

LexGraph::LexGraph(LexTerminals& terminals, const std::vector<SetWord>& competing, size_t max_states)
    : terminals_(terminals), num_classes_(terminals.num_classes()) {
  std::vector<Member> wanted;
  for (uint32_t rank = 0; rank < terminals.order().size(); rank++)
    if (has(competing.data(), terminals.order()[rank])) wanted.push_back({rank, terminals.expr(rank), false, {}});
  state_of(wanted, 0, 0);
  for (uint32_t state = 0; state < states_.size(); state++) {
    if (states_.size() > max_states) return;
    for (size_t c = 0; c < num_classes_; c++) {
      wanted.clear();
      for (uint32_t i = 0; i < states_[state].num; i++) {
        Member member = members_[states_[state].first + i];
        member.rest = terminals_.derive(member.rest, c);
        if (member.rest != regex::NOTHING) wanted.push_back(member);
      }
      edges_.push_back(wanted.empty() ? DEAD : state_of(wanted, state, terminals_.byte_of(c)));
    }
  }
  complete_ = true;
  find_ends();
}

uint32_t LexGraph::state_of(const std::vector<Member>& wanted, uint32_t from, uint8_t byte) {
  auto hash = [](std::span<const Member> members) {
    uint32_t value = 0;
    for (const Member& member : members) value = ((value ^ member.rank) * 0x9E3779B1u ^ member.rest) * 0x85EBCA6Bu, value ^= value >> 15;
    return value;
  };
  return table_.find_or_add(
      hash(wanted), [&](uint32_t state) { return std::ranges::equal(members(state), wanted); },
      [&] {
        uint32_t winner = DEAD;
        for (const Member& member : wanted)
          if (winner == DEAD && terminals_.nullable(member.rest)) winner = member.rank;
        states_.push_back({static_cast<uint32_t>(members_.size()), static_cast<uint32_t>(wanted.size()), winner, from, byte});
        members_.insert(members_.end(), wanted.begin(), wanted.end());
        return static_cast<uint32_t>(states_.size() - 1);
      });
}

// Backwards until nothing changes. States are numbered breadth first, so a few rounds do most of the work.
void LexGraph::find_ends() {
  for (bool changed = true; changed;) {
    changed = false;
    for (auto state = static_cast<uint32_t>(states_.size()); state-- > 0;) {
      std::span<Member> here{members_.data() + states_[state].first, states_[state].num};
      for (size_t c = 0; c < num_classes_; c++) {
        uint32_t to = next(state, c);
        size_t at = 0;
        std::span<const Member> there = to == DEAD ? std::span<const Member>{} : members(to);
        for (Member& member : here) {
          if (to == DEAD) {
            if (!wins_at(state, member) || member.ended_by.has(c)) continue;
            member.ended_by.add(c), changed = true;
            continue;
          }
          while (at < there.size() && there[at].rank < member.rank) at++;
          if (at == there.size() || there[at].rank != member.rank) continue;
          changed |= member.ended_by.unite(there[at].ended_by);
          if (there[at].wins && !member.wins) member.wins = changed = true;
        }
      }
      for (Member& member : here)
        if (!member.wins && wins_at(state, member)) member.wins = changed = true;
    }
  }
}

Text LexGraph::text_to(uint32_t state) const {
  std::vector<char> bytes;
  for (; state != 0; state = states_[state].from) bytes.push_back(static_cast<char>(states_[state].byte));
  Text out;
  while (!bytes.empty()) out << bytes.back(), bytes.pop_back();
  return out;
}

}  // namespace aici::grammar
