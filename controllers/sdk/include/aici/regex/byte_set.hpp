// A set of bytes: the label of a transition.
#pragma once
#include <array>
#include <cstdint>

namespace aici::regex {

class ByteSet {
 public:
  ByteSet() = default;
  static ByteSet range(uint8_t first, uint8_t last) {
    ByteSet set;
    for (unsigned byte = first; byte <= last; byte++) set.add(static_cast<uint8_t>(byte));
    return set;
  }
  void add(uint8_t byte) { words_[byte / 32] |= 1u << (byte % 32); }
  bool has(uint8_t byte) const { return words_[byte / 32] >> (byte % 32) & 1; }
  bool empty() const {
    for (uint32_t word : words_)
      if (word) return false;
    return true;
  }
  ByteSet operator|(const ByteSet& other) const {
    ByteSet set;
    for (size_t i = 0; i < words_.size(); i++) set.words_[i] = words_[i] | other.words_[i];
    return set;
  }
  ByteSet operator&(const ByteSet& other) const {
    ByteSet set;
    for (size_t i = 0; i < words_.size(); i++) set.words_[i] = words_[i] & other.words_[i];
    return set;
  }
  ByteSet operator~() const {
    ByteSet set;
    for (size_t i = 0; i < words_.size(); i++) set.words_[i] = ~words_[i];
    return set;
  }
  static ByteSet all() { return ~ByteSet(); }
  static ByteSet of(uint8_t byte) { return range(byte, byte); }
  // The least byte; the set must not be empty.
  uint8_t first() const {
    unsigned i = 0;
    while (!words_[i]) i++;
    return static_cast<uint8_t>(i * 32 + static_cast<unsigned>(__builtin_ctz(words_[i])));
  }
  uint32_t word(size_t i) const { return words_[i]; }
  bool operator==(const ByteSet&) const = default;
  uint32_t hash() const {
    uint32_t hash = 0;
    for (uint32_t word : words_) hash = (hash ^ word) * 0x9E3779B1u, hash ^= hash >> 15;
    return hash;
  }

 private:
  std::array<uint32_t, 8> words_{};
};

}  // namespace aici::regex
