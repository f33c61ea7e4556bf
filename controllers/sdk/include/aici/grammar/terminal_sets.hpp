// Sets of terminals, numbered: equal sets have equal numbers.
//
// Bit 0 (END) stands for SKIP, in the set of terminals that a lexeme can become and in the set that the parser can
// take: the parser always accepts what it never sees. So two sets meet exactly if a lexeme can continue.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "aici/grammar/grammar.hpp"
#include "aici/regex/intern.hpp"

namespace aici::grammar {

using SetId = uint32_t;

// A set under construction.
class TerminalSet {
 public:
  explicit TerminalSet(size_t num_terminals) : words_(num_terminals / 64 + 1) {}
  void add(SymbolId terminal) { words_[terminal / 64] |= uint64_t{1} << (terminal % 64); }
  void remove(SymbolId terminal) { words_[terminal / 64] &= ~(uint64_t{1} << (terminal % 64)); }
  bool has(SymbolId terminal) const { return words_[terminal / 64] >> (terminal % 64) & 1; }
  void clear() { words_.assign(words_.size(), 0); }
  std::span<const uint64_t> words() const { return words_; }

 private:
  friend class TerminalSets;
  std::vector<uint64_t> words_;
};

class TerminalSets {
 public:
  static constexpr SetId UNKNOWN = UINT32_MAX;
  static constexpr uint32_t NO_COLUMN = UINT32_MAX;

  explicit TerminalSets(size_t num_terminals) : num_terminals_(static_cast<SymbolId>(num_terminals)), num_words_(num_terminals / 64 + 1) {}

  SetId id_of(const TerminalSet& set) {
    return table_.find_or_add(
        hash(set.words_.data()), [&](uint32_t id) { return equal(words(id), set.words_.data()); },
        [&] {
          words_.insert(words_.end(), set.words_.begin(), set.words_.end());
          return static_cast<uint32_t>(size() - 1);
        });
  }
  bool has(SetId id, SymbolId terminal) const { return words(id)[terminal / 64] >> (terminal % 64) & 1; }
  bool meets(SetId x, SetId y) const {
    const uint64_t *p = words(x), *q = words(y);
    uint64_t common = 0;
    for (size_t i = 0; i < num_words_; i++) common |= p[i] & q[i];
    return common != 0;
  }
  // Add to `set` the members of x, or the common members of x and y.
  void add_to(TerminalSet& set, SetId x) const {
    for (size_t i = 0; i < num_words_; i++) set.words_[i] |= words(x)[i];
  }
  void add_common_to(TerminalSet& set, SetId x, SetId y) const {
    for (size_t i = 0; i < num_words_; i++) set.words_[i] |= words(x)[i] & words(y)[i];
  }
  size_t size() const { return words_.size() / num_words_; }

  // What a lexeme is: a terminal, a newline with the column of the text after it (see Column), or several terminals at once, which then have a number of their own. END among several
  // says that the lexeme may also be skipped.
  SymbolId lexeme_of(SetId several, uint32_t column = NO_COLUMN) {
    for (size_t i = 0; i < several_.size(); i++)
      if (several_[i].set == several && several_[i].column == column) return num_terminals_ + static_cast<SymbolId>(i);
    several_.push_back({several, column});
    return num_terminals_ + static_cast<SymbolId>(several_.size() - 1);
  }
  bool is_several(SymbolId lexeme) const { return lexeme >= num_terminals_; }
  SetId several(SymbolId lexeme) const { return several_[lexeme - num_terminals_].set; }
  // NO_COLUMN if the lexeme is no newline.
  uint32_t column(SymbolId lexeme) const { return is_several(lexeme) ? several_[lexeme - num_terminals_].column : NO_COLUMN; }
  bool takes(SetId viable, SymbolId lexeme) const {
    return is_several(lexeme) ? meets(viable, several(lexeme)) : has(viable, lexeme);
  }

 private:
  const uint64_t* words(SetId id) const { return &words_[id * num_words_]; }
  bool equal(const uint64_t* x, const uint64_t* y) const {
    for (size_t i = 0; i < num_words_; i++)
      if (x[i] != y[i]) return false;
    return true;
  }
  uint32_t hash(const uint64_t* words) const {
    uint64_t hash = 0;
    for (size_t i = 0; i < num_words_; i++) hash = (hash ^ words[i]) * 0x9E3779B97F4A7C15u, hash ^= hash >> 32;
    return static_cast<uint32_t>(hash);
  }

  SymbolId num_terminals_;
  size_t num_words_;
  std::vector<uint64_t> words_;  // (sets, num_words)
  struct Several {
    SetId set;
    uint32_t column;
  };
  std::vector<Several> several_;
  regex::InternTable table_;
};

}  // namespace aici::grammar
