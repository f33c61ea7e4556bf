// Masks that were computed before, by a number that stands for the state of a recognizer.
#pragma once
#include <cstdint>
#include <cstring>
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
    // Most words are as in the base: eight at a time.
    static constexpr uint32_t ZEROS[8] = {};
    for (uint32_t i = 0; i < mask.num_words(); i += 8) {
      const uint32_t* words = mask.data() + i;
      const uint32_t* others = base ? base->data() + i : ZEROS;
      uint32_t num = mask.num_words() - i;
      if (num < 8 || differ(words, others))
        for (uint32_t j = 0; j < num && j < 8; j++)
          if (words[j] != others[j]) entry->words.push_back({i + j, words[j]});
    }
    size_t slot = key & 0xFFFF;
    if (bytes_ + entry->size_bytes() > MAX_BYTES) entries_.clear(), bytes_ = 0;
    if (slot >= entries_.size()) entries_.resize(slot + 1);
    if (entries_[slot]) bytes_ -= entries_[slot]->size_bytes();
    bytes_ += entry->size_bytes();
    entries_[slot] = static_cast<std::unique_ptr<Entry>&&>(entry);
  }

 private:
  // Eight words each.
  static bool differ(const uint32_t* x, const uint32_t* y) {
    uint64_t xs[4], ys[4];
    memcpy(xs, x, sizeof(xs)), memcpy(ys, y, sizeof(ys));
    return ((xs[0] ^ ys[0]) | (xs[1] ^ ys[1]) | (xs[2] ^ ys[2]) | (xs[3] ^ ys[3])) != 0;
  }

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
