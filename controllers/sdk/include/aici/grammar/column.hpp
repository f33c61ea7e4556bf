// Where the first text of a line stands.
//
// As Python counts: a tab leads to the next multiple of 8, and columns must compare in the same way if a tab is one column
// wide. So a column is two numbers.
#pragma once
#include <cstdint>

namespace aici::grammar {

struct Column {
  static constexpr uint16_t MAX = 1000;  // further right all columns are one, where no line outside of brackets can begin

  uint16_t wide = 0, narrow = 0;  // with tabs of 8 and of 1

  static Column of(uint32_t code) { return {static_cast<uint16_t>(code), static_cast<uint16_t>(code >> 16)}; }
  uint32_t code() const { return uint32_t{narrow} << 16 | wide; }
  bool operator==(const Column&) const = default;

  Column after(uint8_t blank) const {
    if (blank == '\f') return {};
    Column next{static_cast<uint16_t>(blank == '\t' ? wide / 8 * 8 + 8 : wide + 1), static_cast<uint16_t>(narrow + 1)};
    return next.wide < MAX ? next : Column{MAX, MAX};
  }
};

}  // namespace aici::grammar
