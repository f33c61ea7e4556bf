// Masks that were computed before, by a small number that stands for the state of a recognizer.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "aici/token_set.hpp"

namespace aici {

// Bounded: when full, everything is forgotten.
class MaskCache {
 public:
  static constexpr size_t MAX_BYTES = 8 << 20;

  // Valid until the next add(); null when unknown.
  const TokenSet* find(uint32_t key) const { return key < masks_.size() ? masks_[key].get() : nullptr; }

  const TokenSet& add(uint32_t key, const TokenSet& mask) {
    if (bytes_ + mask.size_bytes() > MAX_BYTES) masks_.clear(), bytes_ = 0;
    if (key >= masks_.size()) masks_.resize(key + 1);
    bytes_ += mask.size_bytes();
    masks_[key] = std::make_unique<TokenSet>(mask);
    return *masks_[key];
  }

 private:
  std::vector<std::unique_ptr<TokenSet>> masks_;
  size_t bytes_ = 0;
};

}  // namespace aici
