#include "aici/regex/code_points.hpp"

#include <algorithm>

#include "aici/sort.hpp"

namespace aici::regex {

bool CodePoints::has(uint32_t c) const {
  return std::ranges::any_of(ranges_, [c](CodePointRange range) { return range.first <= c && c <= range.last; });
}

CodePoints CodePoints::sorted() const {
  std::vector<CodePointRange> ranges(ranges_);
  auto by_first = [](CodePointRange x, CodePointRange y) { return x.first < y.first; };
  sort(ranges, by_first);
  CodePoints merged;
  for (CodePointRange range : ranges) {
    if (!merged.ranges_.empty() && range.first <= merged.ranges_.back().last + 1) {
      merged.ranges_.back().last = std::max(merged.ranges_.back().last, range.last);
    } else {
      merged.ranges_.push_back(range);
    }
  }
  return merged;
}

CodePoints CodePoints::negated() const {
  CodePoints gaps;
  uint32_t next = 0;
  for (CodePointRange range : sorted().ranges_) {
    if (range.first > next) gaps.add(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= MAX_CODE_POINT) gaps.add(next, MAX_CODE_POINT);
  return gaps;
}

CodePoints CodePoints::either_case() const {
  CodePoints both = *this;
  for (CodePointRange range : ranges_) {
    uint32_t upper_first = std::max<uint32_t>(range.first, 'A'), upper_last = std::min<uint32_t>(range.last, 'Z');
    uint32_t lower_first = std::max<uint32_t>(range.first, 'a'), lower_last = std::min<uint32_t>(range.last, 'z');
    if (upper_first <= upper_last) both.add(upper_first + 32, upper_last + 32);
    if (lower_first <= lower_last) both.add(lower_first - 32, lower_last - 32);
  }
  return both;
}

}  // namespace aici::regex
