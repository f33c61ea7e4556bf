// Simplification of alternations. It is what keeps the automaton small: branches with a common start share it (a list of
// words becomes a tree), counters that differ only in their count become one, bytes become classes.
#include <algorithm>

#include "aici/regex/expr.hpp"
#include "aici/sort.hpp"

namespace aici::regex {
namespace {

// Factoring recurses along a common start; past this many shared parts the branches stay as they are.
constexpr int MAX_FACTORED_DEPTH = 64;
// Of the arena while a derivative is made: an automaton takes less, see Dfa::MAX_EXPRS.
constexpr size_t MAX_WEIGHT = 600'000;

}  // namespace

ExprId Exprs::alt(std::vector<ExprId> candidates, int depth) {
  for (ExprId e : candidates)
    if (e == all_) return all_;
  bool with_empty = false;
  std::vector<Term> terms;
  if (error_ && round_ != 0) return NOTHING;
  for (ExprId e : candidates) flatten(e, terms, with_empty);
  alt_terms_ += terms.size();
  if (round_ != 0 && (alt_terms_ > last_term_ || weight() > MAX_WEIGHT))
    return fail("the text so far can be read in too many ways: make the rules less ambiguous"), NOTHING;
  factor_heads(terms, depth);
  merge_repeats(terms);
  merge_bytes(terms);
  std::vector<ExprId> result;
  bool any_nullable = false;
  for (const Term& term : terms) {
    result.push_back(concat(term.head, term.tail));
    any_nullable |= nullable(result.back());
  }
  if (with_empty && !any_nullable) result.push_back(EMPTY);
  return intern_members(Kind::Alt, result);
}

void Exprs::flatten(ExprId e, std::vector<Term>& terms, bool& with_empty) const {
  const Node& node = nodes_[e];
  switch (node.kind) {
    case Kind::Nothing:
      return;
    case Kind::Empty:
      with_empty = true;
      return;
    case Kind::Alt:  // members of an alternation are never alternations
      for (ExprId member : members(node)) flatten(member, terms, with_empty);
      return;
    case Kind::Concat:
      return terms.push_back({node.a, node.b});
    default:
      return terms.push_back({e, EMPTY});
  }
}

// x y | x z is x (y|z)
void Exprs::factor_heads(std::vector<Term>& terms, int depth) {
  auto order = [](const Term& x, const Term& y) { return x.head != y.head ? x.head < y.head : x.tail < y.tail; };
  sort(terms, order);
  terms.erase(std::unique(terms.begin(), terms.end()), terms.end());
  if (depth >= MAX_FACTORED_DEPTH) return;
  std::vector<Term> factored;
  for (size_t i = 0; i < terms.size();) {
    std::vector<ExprId> tails;
    ExprId head = terms[i].head;
    for (; i < terms.size() && terms[i].head == head; i++) tails.push_back(terms[i].tail);
    factored.push_back({head, tails.size() == 1 ? tails[0] : alt(tails, depth + 1)});
  }
  terms.swap(factored);
}

// x{2,5} y | x{4,9} y is x{2,9} y. Otherwise counting an ambiguous body takes exponentially many states.
void Exprs::merge_repeats(std::vector<Term>& terms) {
  std::vector<Term> rest, counted;
  for (const Term& term : terms) (nodes_[term.head].kind == Kind::Repeat ? counted : rest).push_back(term);
  if (counted.size() < 2) return;
  auto order = [this](const Term& x, const Term& y) {
    const Node &p = nodes_[x.head], &q = nodes_[y.head];
    if (p.a != q.a) return p.a < q.a;
    if (x.tail != y.tail) return x.tail < y.tail;
    return p.b < q.b;
  };
  sort(counted, order);
  for (size_t i = 0; i < counted.size();) {
    Term term = counted[i];
    Node merged = nodes_[term.head];
    for (i++; i < counted.size() && counted[i].tail == term.tail; i++) {
      const Node& next = nodes_[counted[i].head];
      bool touch = merged.c == UNBOUNDED || next.b <= merged.c + 1;
      if (next.a != merged.a || !touch) break;
      merged.c = std::max(merged.c, next.c);
    }
    rest.push_back({repeat(merged.a, merged.b, merged.c), term.tail});
  }
  terms.swap(rest);
}

// [a] y | [b] y is [ab] y
void Exprs::merge_bytes(std::vector<Term>& terms) {
  std::vector<Term> rest, labelled;
  for (const Term& term : terms) (nodes_[term.head].kind == Kind::Bytes ? labelled : rest).push_back(term);
  if (labelled.size() < 2) return;
  sort(labelled, [](const Term& x, const Term& y) { return x.tail < y.tail; });
  for (size_t i = 0; i < labelled.size();) {
    ExprId tail = labelled[i].tail;
    ByteSet set;
    for (; i < labelled.size() && labelled[i].tail == tail; i++) set = set | sets_[nodes_[labelled[i].head].a];
    rest.push_back({bytes(set), tail});
  }
  terms.swap(rest);
}

}  // namespace aici::regex
