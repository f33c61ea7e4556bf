// Hash-consing: finds the number of a value that was seen before.
#pragma once
#include <cstdint>
#include <vector>

namespace aici::regex {

// An open-addressed table of numbers into a list that the owner keeps. Load stays below one half.
class InternTable {
 public:
  // The number n with equal(n), else calls add() and keeps the number that it returns. `hash_of(n)` is the hash of n.
  template <typename Equal, typename Add, typename HashOf>
  uint32_t find_or_add(uint32_t hash, Equal equal, Add add, HashOf hash_of) {
    if (2 * (used_ + 1) > slots_.size()) grow(hash_of);
    size_t mask = slots_.size() - 1;
    size_t at = hash & mask;
    for (; slots_[at] != FREE; at = (at + 1) & mask)
      if (equal(slots_[at])) return slots_[at];
    used_++;
    return slots_[at] = add();
  }

 private:
  static constexpr uint32_t FREE = UINT32_MAX;

  template <typename HashOf>
  void grow(HashOf hash_of) {
    std::vector<uint32_t> old(slots_.empty() ? 64 : slots_.size() * 2, FREE);
    old.swap(slots_);
    size_t mask = slots_.size() - 1;
    for (uint32_t number : old) {
      if (number == FREE) continue;
      size_t at = hash_of(number) & mask;
      while (slots_[at] != FREE) at = (at + 1) & mask;
      slots_[at] = number;
    }
  }

  std::vector<uint32_t> slots_;
  size_t used_ = 0;
};

}  // namespace aici::regex
