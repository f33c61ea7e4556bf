// A constraint: contiguous words of a text.
#pragma once
#include <optional>
#include <vector>

#include "aici/json_reader.hpp"
#include "aici/recognizer.hpp"
#include "aici/sorted_texts.hpp"

namespace aici {

// The text from the start of each word to the end, sorted by bytes. Single spaces separate words; one additional space
// follows the last word.
class WordSuffixes {
 public:
  explicit WordSuffixes(Text text);

  uint32_t num() const { return static_cast<uint32_t>(starts_.size()); }
  int at(uint32_t i, uint32_t depth) const {
    size_t offset = size_t{starts_[i]} + depth;
    return offset < text_.size() ? static_cast<uint8_t>(text_.view()[offset]) : offset == text_.size() ? ' ' : -1;
  }

 private:
  Text text_;
  std::vector<uint32_t> starts_;
};

struct SubstringArgument {
  Text text, end;
};

// Read {"text": ..., "end": ...}; nullopt, with the problem, for anything else. "end" is optional.
std::optional<SubstringArgument> read_substring(std::string_view json, std::optional<json::Problem>& problem);

// A run of words, at least one byte long, then `end`. If the text itself continues like `end`, both ways are followed.
class SubstringRecognizer {
 public:
  static constexpr size_t MAX_TEXT_BYTES = 4 << 20;
  static constexpr size_t MAX_WORDS = 1 << 20;
  static constexpr size_t MAX_END_BYTES = 64;  // the bits of State::ends

  struct State {
    TextRange range;  // empty if only the end string can continue
    uint64_t ends;    // bit k: the last k + 1 bytes begin the end string, after a run of words
  };

  explicit SubstringRecognizer(SubstringArgument argument);

  State initial() const { return {texts_.all(), 0}; }
  State append(const State& state, uint8_t byte);
  bool byte_allowed(const State& state, uint8_t byte) { return !is_dead(append(state, byte)); }
  bool try_append(const State& state, uint8_t byte, State& next) { return !is_dead(next = append(state, byte)); }
  bool special_allowed(const State& state, SpecialToken) {
    return end_.empty() ? is_run(state.range) : state.ends >> (end_.size() - 1) & 1;
  }

 private:
  static bool is_dead(const State& state) { return state.range.empty() && state.ends == 0; }
  bool is_run(const TextRange& range) { return range.depth > 0 && !texts_.narrowed(range, ' ').empty(); }

  SortedTexts<WordSuffixes> texts_;
  Text end_;
  uint64_t end_has_[256] = {};  // bit k: byte k of the end string has this value
};

}  // namespace aici
