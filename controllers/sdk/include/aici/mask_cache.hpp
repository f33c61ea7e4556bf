// Masks that were computed before, by a number that stands for the state of a recognizer.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "aici/token_set.hpp"

namespace aici {

// Most masks are nearly empty or nearly a slice of the vocabulary, and memory that is touched for the first time costs
// more than anything else here: what is kept is the words that differ from such a base.
//
// Bounded: when full, everything is forgotten. Of keys that agree in their low 16 bits the newest is kept: those bits
// number a state, those above count how often states were renumbered.
class MaskCache {
 public:
  static constexpr size_t MAX_BYTES = 8 << 20;

  // Sets `mask` to the mask that was added under `key`; false when there is none.
  bool load(uint32_t key, TokenSet& mask) const {
    size_t slot = key & 0xFFFF;
    if (slot >= entries_.size() || !entries_[slot] || entries_[slot]->key != key) return false;
    const Entry& entry = *entries_[slot];
    if (entry.base)
      mask.assign(*entry.base);
    else
      mask.clear();
    for (const Word& word : entry.words) mask.set_word(word.number, word.bits);
    return true;
  }

  // `base`, if any, is a set that `mask` mostly equals and that outlives the cache.
  void add(uint32_t key, const TokenSet& mask, const TokenSet* base) {
    auto entry = std::make_unique<Entry>(key, base);
    for (uint32_t i = 0; i < mask.num_words(); i++)
      if (uint32_t bits = mask.word(i); bits != (base ? base->word(i) : 0)) entry->words.push_back({i, bits});
    size_t slot = key & 0xFFFF;
    if (bytes_ + entry->size_bytes() > MAX_BYTES) entries_.clear(), bytes_ = 0;
    if (slot >= entries_.size()) entries_.resize(slot + 1);
    if (entries_[slot]) bytes_ -= entries_[slot]->size_bytes();
    bytes_ += entry->size_bytes();
    entries_[slot] = static_cast<std::unique_ptr<Entry>&&>(entry);
  }

 private:
  struct Word {
    uint32_t number, bits;
  };
  struct Entry {
    uint32_t key;
    const TokenSet* base;
    std::vector<Word> words{};
    size_t size_bytes() const { return sizeof(Entry) + words.capacity() * sizeof(Word); }
  };
  std::vector<std::unique_ptr<Entry>> entries_;
  size_t bytes_ = 0;
};

}  // namespace aici
