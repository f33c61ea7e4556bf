// Sets of Unicode code points, and the texts of one code point as expressions over bytes.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "aici/regex/expr.hpp"

namespace aici::regex {

inline constexpr uint32_t MAX_CODE_POINT = 0x10FFFF;

// How code points are written in the constrained text.
enum class Encoding : uint8_t {
  Utf8,        // no surrogates, no overlong forms
  JsonString,  // as inside the quotes of a JSON string: UTF-8 if allowed there, short escapes, \uXXXX in either case
};

struct CodePointRange {
  uint32_t first, last;
};

// Ranges in any order, possibly overlapping. Surrogates may be inside ranges and are never matched.
class CodePoints {
 public:
  void add(uint32_t first, uint32_t last) { ranges_.push_back({first, last}); }
  void add(const CodePoints& other) { ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end()); }
  bool has(uint32_t code_point) const;
  // The same set as ranges in ascending order with gaps between.
  CodePoints sorted() const;
  CodePoints negated() const;
  // The set with the other case of each ASCII letter added. Letters beyond ASCII keep their case.
  CodePoints either_case() const;
  std::span<const CodePointRange> ranges() const { return ranges_; }
  // Exactly one code point of the set.
  ExprId to_expr(Exprs& exprs, Encoding encoding = Encoding::Utf8) const;

 private:
  std::vector<CodePointRange> ranges_;
};

}  // namespace aici::regex
