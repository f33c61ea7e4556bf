// Many texts in byte order, searched byte by byte: the base of choices and substrings.
#pragma once
#include <cstdint>
#include <memory>

namespace aici {

// The texts lo <= i < hi, which agree in their first `depth` bytes.
struct TextRange {
  uint32_t lo, hi, depth;
  bool empty() const { return lo >= hi; }
  bool operator==(const TextRange&) const = default;
};

// `Texts` has num() -> uint32_t and at(i, depth) -> int: a byte of text i, or -1 behind its end. Texts are sorted by
// these values.
//
// A walk over the token trie asks for the bytes of a range in ascending order. So for every depth a cursor remembers
// the position of the last search: an absent byte costs one comparison, a present byte a search from the cursor on.
template <typename Texts>
class SortedTexts {
 public:
  explicit SortedTexts(Texts texts) : texts_(static_cast<Texts&&>(texts)), cursors_(new Cursor[NUM_CURSORS]()) {}

  const Texts& texts() const { return texts_; }
  TextRange all() const { return {0, texts_.num(), 0}; }

  // The texts of `range` that continue with `byte`.
  TextRange narrowed(const TextRange& range, uint8_t byte) {
    if (range.empty()) return {0, 0, 0};
    Cursor& cursor = cursors_[range.depth % NUM_CURSORS];
    if (!(cursor.range == range) || byte < cursor.floor) cursor = {range, range.lo, range.lo, 0, -1};
    cursor.floor = byte;
    if (cursor.byte < byte) {
      cursor.at = cursor.end = first_not_below(cursor.end, range, byte);
      cursor.byte = cursor.at < range.hi ? texts_.at(cursor.at, range.depth) : NONE;
    }
    if (cursor.byte != byte) return {0, 0, 0};
    if (cursor.at == cursor.end) cursor.end = first_not_below(cursor.at, range, byte + 1);
    return {cursor.at, cursor.end, range.depth + 1};
  }

 private:
  static constexpr uint32_t NUM_CURSORS = 256;  // a power of two, greater than the bytes of the longest token
  static constexpr int NONE = 256;

  // Texts of `range` before `at` have a smaller byte than `floor`. Text `at` has `byte` (NONE: there is no such text),
  // and so have all texts before `end`. `end` is `at` until searched for.
  struct Cursor {
    TextRange range;
    uint32_t at, end;
    uint8_t floor;
    int byte;
  };

  // The first text from `from` on whose byte is `byte` or greater: double the step, then halve.
  uint32_t first_not_below(uint32_t from, const TextRange& range, int byte) const {
    uint32_t lo = from, step = 1;
    while (lo + step <= range.hi && texts_.at(lo + step - 1, range.depth) < byte) lo += step, step *= 2;
    uint32_t hi = lo + step <= range.hi ? lo + step - 1 : range.hi;  // the answer is in lo..hi
    while (lo < hi) {
      uint32_t middle = lo + (hi - lo) / 2;
      texts_.at(middle, range.depth) < byte ? lo = middle + 1 : hi = middle;
    }
    return lo;
  }

  Texts texts_;
  std::unique_ptr<Cursor[]> cursors_;
};

}  // namespace aici
