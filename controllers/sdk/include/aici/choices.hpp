// A constraint: the text is one of many given texts.
#pragma once
#include <optional>
#include <vector>

#include "aici/json_reader.hpp"
#include "aici/recognizer.hpp"
#include "aici/sorted_texts.hpp"

namespace aici {

// Sorted by bytes, without duplicates.
class ChoiceList {
 public:
  uint32_t num() const { return static_cast<uint32_t>(choices_.size()); }
  int at(uint32_t i, uint32_t depth) const {
    const Choice& choice = choices_[i];
    return depth < choice.len ? static_cast<uint8_t>(bytes_.view()[choice.start + depth]) : -1;
  }

 private:
  friend std::optional<ChoiceList> read_choices(std::string_view, std::optional<json::Problem>&);
  void add(size_t start) { choices_.push_back({static_cast<uint32_t>(start), static_cast<uint32_t>(bytes_.size() - start)}); }
  void sort();

  struct Choice {
    uint32_t start, len;
  };
  Text bytes_;
  std::vector<Choice> choices_;
};

// Read a JSON array of at least one string; nullopt, with the problem, for anything else.
std::optional<ChoiceList> read_choices(std::string_view json, std::optional<json::Problem>& problem);

class ChoicesRecognizer {
 public:
  using State = TextRange;

  explicit ChoicesRecognizer(ChoiceList choices) : texts_(static_cast<ChoiceList&&>(choices)) {}

  State initial() const { return texts_.all(); }
  State append(const State& state, uint8_t byte) { return texts_.narrowed(state, byte); }
  bool byte_allowed(const State& state, uint8_t byte) { return !texts_.narrowed(state, byte).empty(); }
  bool try_append(const State& state, uint8_t byte, State& next) { return !(next = texts_.narrowed(state, byte)).empty(); }
  // The shortest text sorts first.
  bool special_allowed(const State& state, SpecialToken) const { return texts_.texts().at(state.lo, state.depth) < 0; }

 private:
  SortedTexts<ChoiceList> texts_;
};

}  // namespace aici
