// Masks that were computed before, by a number that stands for the state of a recognizer.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "aici/token_set.hpp"

namespace aici {

// Bounded: when full, everything is forgotten. Of keys that agree in their low 16 bits the newest is kept: those bits
// number a state, those above count how often states were renumbered.
class MaskCache {
 public:
  static constexpr size_t MAX_BYTES = 8 << 20;

  // Valid until the next add(); null when unknown.
  const TokenSet* find(uint32_t key) const {
    size_t slot = key & 0xFFFF;
    return slot < entries_.size() && entries_[slot] && entries_[slot]->key == key ? &entries_[slot]->mask : nullptr;
  }

  const TokenSet& add(uint32_t key, const TokenSet& mask) {
    size_t slot = key & 0xFFFF;
    if (bytes_ + mask.size_bytes() > MAX_BYTES) entries_.clear(), bytes_ = 0;
    if (slot >= entries_.size()) entries_.resize(slot + 1);
    if (!entries_[slot]) bytes_ += mask.size_bytes();
    entries_[slot] = std::make_unique<Entry>(key, mask);
    return entries_[slot]->mask;
  }

 private:
  struct Entry {
    uint32_t key;
    TokenSet mask;
  };
  std::vector<std::unique_ptr<Entry>> entries_;
  size_t bytes_ = 0;
};

}  // namespace aici
