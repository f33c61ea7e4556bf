// What a state allows of a whole class of text.
#include "aici/regex/dfa.hpp"
#include "aici/text_walk.hpp"

namespace aici::regex {
namespace {

constexpr uint64_t MAX_WORK = 800;  // about a tenth of a millisecond

}  // namespace

bool Dfa::allows_all(StateId state, const TextClass& text) {
  // Most states that refuse text refuse letters, and to find that out is faster than what follows a blank.
  if (text.next(TextClass::START, 'a') != TextClass::DEAD && next(state, 'a') == DEAD) return false;
  // A state of many patterns may have a thousand followers, each of which takes long to find: a walk is faster then.
  uint64_t last_work = exprs_.work() + MAX_WORK;
  return stays_alive<StateId>(
      state, text, [this](StateId at, uint8_t byte) { return next(at, byte); },
      [&](StateId, TextClass::State) { return exprs_.work() > last_work ? std::nullopt : std::optional(true); });
}

// Whether every code point of the class is a text of `body`, and none is the beginning of a longer text.
bool Dfa::is_code_point(ExprId body, const TextClass& text) {
  for (const CodePointBody& known : bodies_)
    if (known.body == body && known.text == &text) return known.holds;
  bool holds = stays_alive<StateId>(
      state_of(body), text, [this](StateId at, uint8_t byte) { return next(at, byte); },
      [this](StateId to, TextClass::State at) -> std::optional<bool> {
        if (at == TextClass::START) return state_exprs_[to] == EMPTY ? std::optional(false) : std::nullopt;
        return accepts(to) ? std::nullopt : std::optional(true);
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
