// A cache of masks, by a number for the state of a recognizer.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "aici/token_set.hpp"

namespace aici {

// Most masks are nearly empty or nearly a slice of the vocabulary, and touching new memory costs more than anything
// else here. So a mask is kept as the words that differ from a base: nothing, or a slice.
//
// Bounded: a full cache forgets everything. Of keys with equal low 16 bits the newest stays: these bits number a state,
// the bits above count how often states were renumbered.
class MaskCache {
 public:
  static constexpr size_t MAX_BYTES = 8 << 20;

  // Set `mask` to the mask added under `key`; returns false if there is none.
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

  // `base`: an optional set that mostly equals `mask` and outlives the cache.
  void add(uint32_t key, const TokenSet& mask, const TokenSet* base) {
    auto entry = std::make_unique<Entry>(key, base);
    // Most words equal the base, so compare eight at a time.
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
