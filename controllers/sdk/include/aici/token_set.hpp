// A set of tokens: the mask returned by a step.
#pragma once
#include <cstdint>
#include <vector>

namespace aici {

// One bit per token: token t is bit t % 32 of word t / 32; ceil(vocab / 32) words, the layout read by the runtime. At
// least one bit is spare. Bits from the vocabulary size on stay clear. Ids from the vocabulary size on are a bug of the
// caller and are not checked.
class TokenSet {
 public:
  explicit TokenSet(uint32_t vocab_size) : vocab_size_(vocab_size), words_(vocab_size / 32 + 1) {}

  void allow(uint32_t token) { words_[token / 32] |= 1u << (token % 32); }
  void disallow(uint32_t token) { words_[token / 32] &= ~(1u << (token % 32)); }
  bool allows(uint32_t token) const { return words_[token / 32] >> (token % 32) & 1; }

  void clear() { words_.assign(words_.size(), 0); }
  void allow_all() {
    words_.assign(words_.size(), UINT32_MAX);
    words_.back() = (1u << (vocab_size_ % 32)) - 1;
  }
  void allow_all_of(const TokenSet& other) {
    for (size_t i = 0; i < words_.size(); i++) words_[i] |= other.words_[i];
  }
  bool empty() const {
    for (uint32_t word : words_)
      if (word) return false;
    return true;
  }

  // For inner loops: any number from the vocabulary size on sets the spare bit, which must be cleared afterwards.
  void allow_or_spare(uint32_t token) { allow(token < vocab_size_ ? token : vocab_size_); }
  void clear_spare() { disallow(vocab_size_); }

  // Copy a set of the same vocabulary without allocating.
  void assign(const TokenSet& other) { words_.assign(other.words_.begin(), other.words_.end()); }
  uint32_t num_words() const { return static_cast<uint32_t>(words_.size()); }
  uint32_t word(uint32_t number) const { return words_[number]; }
  void set_word(uint32_t number, uint32_t bits) { words_[number] = bits; }

  uint32_t vocab_size() const { return vocab_size_; }
  const uint32_t* data() const { return words_.data(); }
  uint32_t size_bytes() const { return (vocab_size_ + 31) / 32 * 4; }

 private:
  uint32_t vocab_size_;
  std::vector<uint32_t> words_;
};

}  // namespace aici
