// Slices: parts of a vocabulary that many states allow as a whole, namely the tokens that are text of one class, such
// as text inside a JSON string. A recognizer that allows all text of the class gets these tokens by copying a bitset,
// and only the rest of the vocabulary is walked.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "aici/token_set.hpp"

namespace aici {

// A set of code points, and texts of these code points in UTF-8, read byte by byte. A state is the position inside a
// code point.
class TextClass {
 public:
  using State = uint8_t;
  static constexpr State START = 0;  // between code points; text that ends elsewhere is the beginning of a text
  static constexpr State DEAD = 0xFF;
  static constexpr size_t NUM_STATES = 8;

  // Code points above ASCII are either all in the class or all outside.
  constexpr TextClass(std::string_view ascii_ranges, bool beyond_ascii) {
    lead_.fill(DEAD);
    for (size_t i = 0; i < ascii_ranges.size(); i += 2)
      for (auto c = static_cast<uint8_t>(ascii_ranges[i]); c <= static_cast<uint8_t>(ascii_ranges[i + 1]); c++) lead_[c] = START;
    if (!beyond_ascii) return;
    for (unsigned byte = 0xC2; byte <= 0xF4; byte++)
      lead_[byte] = byte < 0xE0 ? 1 : byte == 0xE0 ? 4 : byte == 0xED ? 5 : byte < 0xF0 ? 2 : byte == 0xF0 ? 6 : byte < 0xF4 ? 3 : 7;
  }

  constexpr State next(State state, uint8_t byte) const {
    if (state == START) return lead_[byte];
    const Trail& trail = TRAILS[state];
    return byte >= trail.first && byte <= trail.last ? trail.then : DEAD;
  }

 private:
  struct Trail {
    uint8_t first, last;
    State then;
  };
  // After a lead byte: no surrogates, no overlong forms, nothing above U+10FFFF (Unicode 15.0, table 3-7).
  static constexpr Trail TRAILS[NUM_STATES] = {{1, 0, DEAD},     {0x80, 0xBF, START}, {0x80, 0xBF, 1}, {0x80, 0xBF, 2},
                                               {0xA0, 0xBF, 1}, {0x80, 0x9F, 1},     {0x90, 0xBF, 2}, {0x80, 0x8F, 2}};
  std::array<State, 256> lead_{};
};

inline constexpr TextClass TEXT_CLASSES[] = {
    TextClass(" !#[]\x7F", true),  // inside a JSON string, unescaped
    TextClass("AZaz09", false),    // inside a word, in most definitions of a word
};

// The tokens that are text of a class, and the part of the tree to walk for all other tokens. Entries are nodes in the
// order of the tree: paths, which are text of the class themselves, lead to outside nodes, each of which stands for its
// whole subtree.
struct Slice {
  struct Entry {
    uint32_t node_depth;  // node << 8 | depth; the root has depth 0
    uint32_t skip_outside;  // index of the entry to continue with if the node is refused, << 1 | is outside

    uint32_t node() const { return node_depth >> 8; }
    uint32_t depth() const { return node_depth & 0xFF; }
    uint32_t skip() const { return skip_outside >> 1; }
    bool is_outside() const { return skip_outside & 1; }
  };

  const TextClass* text;
  TokenSet inside;
  std::vector<Entry> rest{};
};

// What a recognizer can say about a class: how many code points of the class, whichever, may follow before none may.
inline constexpr uint32_t ANY_NUMBER = UINT32_MAX;

}  // namespace aici
