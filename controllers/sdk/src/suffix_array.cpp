// Induced sorting (SA-IS: Nong, Zhang, Chan, "Two Efficient Algorithms for Linear Time Suffix Array Construction",
// 2011).
//
// A suffix is falling if it is greater than the next suffix, else rising; the last is falling. A valley is a rising
// suffix after a falling suffix. Once the valleys are sorted, one pass up and one pass down sort all other suffixes,
// because each is a value in front of a suffix with a known place. Valleys are sorted by sorting the pieces between
// valleys in the same way, numbering the pieces, and solving the sequence of numbers, which is at most half as long. So
// the depth of the recursion is the logarithm of the length.
#include "aici/suffix_array.hpp"

namespace aici {
namespace {

constexpr uint32_t NONE = UINT32_MAX;

class Sorter {
 public:
  Sorter(std::span<const uint32_t> values, uint32_t num_values)
      : values_(values), num_(static_cast<uint32_t>(values.size())), bucket_ends_(num_values), rising_(num_), order_(num_) {
    for (uint32_t value : values_) bucket_ends_[value]++;
    for (uint32_t v = 1; v < num_values; v++) bucket_ends_[v] += bucket_ends_[v - 1];
    for (uint32_t i = num_ - 1; i-- > 0;)
      rising_[i] = values_[i] < values_[i + 1] || (values_[i] == values_[i + 1] && rising_[i + 1]);
    for (uint32_t i = 1; i < num_; i++)
      if (is_valley(i)) valleys_.push_back(i);
  }

  std::vector<uint32_t> sort() {
    induce();
    if (!valleys_.empty()) {
      std::vector<uint32_t> names(num_ / 2 + 1, NONE);  // by position / 2: no two valleys are neighbours
      if (uint32_t num_names = name_valleys(names); num_names < valleys_.size()) {
        std::vector<uint32_t>().swap(order_);  // room for the recursion
        std::vector<uint32_t> reduced;
        reduced.reserve(valleys_.size());
        for (uint32_t valley : valleys_) reduced.push_back(names[valley / 2]);
        std::vector<uint32_t> sorted = suffix_array(reduced, num_names);
        for (uint32_t& index : sorted) index = valleys_[index];
        valleys_.swap(sorted);
      } else {
        std::vector<uint32_t> sorted(valleys_.size());
        for (uint32_t valley : valleys_) sorted[names[valley / 2]] = valley;
        valleys_.swap(sorted);
      }
      induce();
    }
    return static_cast<std::vector<uint32_t>&&>(order_);
  }

 private:
  bool is_valley(uint32_t i) const { return i > 0 && rising_[i] && !rising_[i - 1]; }

  // Sort all suffixes from valleys_, if sorted; else sort the pieces between valleys.
  void induce() {
    order_.assign(num_, NONE);
    std::vector<uint32_t> next = bucket_ends_;
    for (size_t i = valleys_.size(); i-- > 0;) order_[--next[values_[valleys_[i]]]] = valleys_[i];
    next[0] = 0;
    for (size_t v = 1; v < next.size(); v++) next[v] = bucket_ends_[v - 1];
    order_[next[values_[num_ - 1]]++] = num_ - 1;
    for (uint32_t i = 0; i < num_; i++) {
      uint32_t suffix = order_[i];
      if (suffix != NONE && suffix > 0 && !rising_[suffix - 1]) order_[next[values_[suffix - 1]]++] = suffix - 1;
    }
    // Each rising suffix is placed anew, valleys included, before the pass reaches its place.
    next = bucket_ends_;
    for (uint32_t i = num_; i-- > 0;) {
      uint32_t suffix = order_[i];
      if (suffix != NONE && suffix > 0 && rising_[suffix - 1]) order_[--next[values_[suffix - 1]]] = suffix - 1;
    }
  }

  // Number the valleys in the order of the pieces up to the next valley; equal pieces get equal numbers.
  uint32_t name_valleys(std::vector<uint32_t>& names) const {
    uint32_t num_names = 0, before = NONE;
    for (uint32_t suffix : order_) {
      if (!is_valley(suffix)) continue;
      if (before == NONE || !same_piece(before, suffix)) num_names++;
      names[suffix / 2] = num_names - 1;
      before = suffix;
    }
    return num_names;
  }

  bool same_piece(uint32_t a, uint32_t b) const {
    for (uint32_t len = 0;; len++) {
      if (a + len >= num_ || b + len >= num_ || values_[a + len] != values_[b + len]) return false;
      if (len == 0) continue;
      bool a_ends = is_valley(a + len), b_ends = is_valley(b + len);
      if (a_ends || b_ends) return a_ends && b_ends;
    }
  }

  std::span<const uint32_t> values_;
  uint32_t num_;
  std::vector<uint32_t> bucket_ends_;
  std::vector<uint8_t> rising_;
  std::vector<uint32_t> order_;
  std::vector<uint32_t> valleys_;  // by position, then sorted
};

}  // namespace

std::vector<uint32_t> suffix_array(std::span<const uint32_t> values, uint32_t num_values) {
  if (values.empty()) return {};
  return Sorter(values, num_values).sort();
}

}  // namespace aici
