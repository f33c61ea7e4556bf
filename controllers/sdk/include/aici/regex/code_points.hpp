// Sets of Unicode code points, and their UTF-8 encodings as expressions.
#pragma once
#include <cstdint>
#include <vector>

#include "aici/regex/expr.hpp"

namespace aici::regex {

inline constexpr uint32_t MAX_CODE_POINT = 0x10FFFF;

struct CodePointRange {
  uint32_t first, last;
};

// Ranges in any order, which may overlap. Surrogates may be inside ranges and are never matched.
class CodePoints {
 public:
  void add(uint32_t first, uint32_t last) { ranges_.push_back({first, last}); }
  void add(const CodePoints& other) { ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end()); }
  CodePoints negated() const;
  // With the other case of each ASCII letter. Letters beyond ASCII keep their case.
  CodePoints either_case() const;
  // Exactly one code point of the set, in UTF-8: no surrogates, no overlong forms.
  ExprId to_expr(Exprs& exprs) const;

 private:
  std::vector<CodePointRange> ranges_;
};

}  // namespace aici::regex
