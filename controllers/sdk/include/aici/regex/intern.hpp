// Hash-consing: find the number of a value seen before.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace aici::regex {

// An open-addressed table of numbers into a list kept by the owner. The load stays below one half.
class InternTable {
 public:
  // The number n with equal(n); else calls add() and keeps the returned number.
  template <typename Equal, typename Add>
  uint32_t find_or_add(uint32_t hash, Equal equal, Add add) {
    if (2 * (used_ + 1) > slots_.size()) grow(slots_.empty() ? 64 : slots_.size() * 2);
    size_t mask = slots_.size() - 1;
    size_t at = hash & mask;
    for (; slots_[at].number != FREE; at = (at + 1) & mask)
      if (slots_[at].hash == hash && equal(slots_[at].number)) return slots_[at].number;
    used_++;
    uint32_t number = add();
    slots_[at] = {hash, number};
    return number;
  }

  // Grow at once to the size for this many numbers, a power of two.
  void reserve(size_t num) {
    if (2 * num > slots_.size()) grow(2 * num);
  }

 private:
  static constexpr uint32_t FREE = UINT32_MAX;

  // Stored with its hash, so that growing does not compute hashes again.
  struct Slot {
    uint32_t hash, number;
  };

  void grow(size_t num_slots) {
    std::vector<Slot> old(num_slots, Slot{0, FREE});
    old.swap(slots_);
    size_t mask = slots_.size() - 1;
    for (const Slot& slot : old) {
      if (slot.number == FREE) continue;
      size_t at = slot.hash & mask;
      while (slots_[at].number != FREE) at = (at + 1) & mask;
      slots_[at] = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t used_ = 0;
};

}  // namespace aici::regex
