// Decide for a state of an automaton about a whole class of text, so that tokens of the class need not be tried one by
// one.
#pragma once
#include <array>
#include <optional>

#include "aici/slices.hpp"

namespace aici {

// Enumerate the pairs of a state and a position in a code point reached by text of the class. Returns true if the
// enumeration ends without a dead state, which is 0: then all text of the class is allowed. `next(state, byte)` is the
// state after a byte. `visit(state, position)` is called for each pair: true continues, false skips the pair, and nullopt
// ends the search with false. Large enumerations end with false.
template <typename State, typename Next, typename Visit>
bool stays_alive(State state, const TextClass& text, Next next, Visit visit) {
  struct Pair {
    State state;
    TextClass::State at;
    bool operator==(const Pair&) const = default;
  };
  constexpr size_t MAX_PAIRS = 96;
  std::array<Pair, MAX_PAIRS> pairs;
  size_t num_pairs = 0;
  pairs[num_pairs++] = {state, TextClass::START};
  for (size_t i = 0; i < num_pairs; i++) {
    Pair last{0, TextClass::DEAD};
    for (unsigned byte = 0; byte < 256; byte++) {
      Pair to{0, text.next(pairs[i].at, static_cast<uint8_t>(byte))};
      if (to.at == TextClass::DEAD) continue;
      to.state = next(pairs[i].state, static_cast<uint8_t>(byte));
      if (to.state == 0) return false;
      if (to == last) continue;  // neighbours mostly lead to the same state
      last = to;
      std::optional<bool> go_on = visit(to.state, to.at);
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

}  // namespace aici
