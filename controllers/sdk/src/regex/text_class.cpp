// Decide for a state about a whole class of text, so that tokens of the class need not be tried one by one.
#include "aici/regex/dfa.hpp"

namespace aici::regex {

// Enumerate the pairs of a state and a position in a code point reached by text of the class. If the enumeration ends
// without a dead state, all text of the class is allowed. `visit` is called for each pair: true continues, false skips
// the pair, and nullopt ends the search with false.
template <typename Visit>
bool Dfa::stays_alive(StateId state, const TextClass& text, Visit visit) {
  constexpr size_t MAX_PAIRS = 96;
  std::array<Pair, MAX_PAIRS> pairs;
  size_t num_pairs = 0;
  pairs[num_pairs++] = {state, TextClass::START};
  for (size_t i = 0; i < num_pairs; i++) {
    Pair last{DEAD, TextClass::DEAD};
    for (unsigned byte = 0; byte < 256; byte++) {
      Pair to{DEAD, text.next(pairs[i].at, static_cast<uint8_t>(byte))};
      if (to.at == TextClass::DEAD) continue;
      to.state = next(pairs[i].state, static_cast<uint8_t>(byte));
      if (to.state == DEAD) return false;
      if (to == last) continue;  // neighbours mostly lead to the same state
      last = to;
      std::optional<bool> go_on = visit(to);
      if (!go_on) return false;
      if (!*go_on) continue;
      size_t known = 0;
      while (known < num_pairs && pairs[known] != to) known++;
      if (known < num_pairs) continue;
      if (num_pairs == MAX_PAIRS) return false;
      pairs[num_pairs++] = to;
    }
  }
  return true;
}

bool Dfa::allows_all(StateId state, const TextClass& text) {
  return stays_alive(state, text, [](Pair) { return std::optional(true); });
}

// Whether every code point of the class is a text of `body`, and none is the beginning of a longer text.
bool Dfa::is_code_point(ExprId body, const TextClass& text) {
  for (const CodePointBody& known : bodies_)
    if (known.body == body && known.text == &text) return known.holds;
  bool holds = stays_alive(state_of(body), text, [this](Pair to) -> std::optional<bool> {
    if (to.at == TextClass::START) return state_exprs_[to.state] == EMPTY ? std::optional(false) : std::nullopt;
    return accepts(to.state) ? std::nullopt : std::optional(true);
  });
  bodies_.push_back({body, &text, holds});
  return holds;
}

bool Dfa::begins_with(ExprId e, const TextClass& text) {
  StateId state = state_of(e);
  for (unsigned byte = 0; byte < 256; byte++)
    if (text.next(TextClass::START, static_cast<uint8_t>(byte)) != TextClass::DEAD && next(state, static_cast<uint8_t>(byte)) != DEAD)
      return true;
  return false;
}

uint32_t Dfa::num_allowed(StateId state, const TextClass& text) {
  // One code point is one turn, so the remaining turns are counted in code points, unless the tail takes code points
  // too.
  std::optional<Exprs::Counted> counted = exprs_.as_counted(state_exprs_[state]);
  if (counted && counted->max != UNBOUNDED)
    return is_code_point(counted->body, text) && !begins_with(counted->tail, text) ? counted->max : 0;
  ExprId all_but_some = exprs_.without_exceptions(state_exprs_[state]);
  if (all_but_some != NOTHING && allows_all(state_of(all_but_some), text)) return ANY_NUMBER;
  return allows_all(state, text) ? ANY_NUMBER : 0;
}

}  // namespace aici::regex
