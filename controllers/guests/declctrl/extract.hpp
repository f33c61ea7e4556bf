// A regular expression with groups, to be searched for in a text: Extract needs groups, which masks do not have.
//
// Perl's rules (the first of several alternatives, greedy unless followed by ?) without the parts that are not regular:
// literals, classes, \d \w \s (ASCII) and their opposites, . (no newline), | * + ? {n,m}, groups, (?:...), ^ and $ (of
// the text). Time and memory grow with the size of the pattern times the size of the text.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "aici/text.hpp"

namespace declctrl {

using aici::Text;

struct Match {
  static constexpr size_t NONE = SIZE_MAX;
  std::vector<size_t> bounds;  // of the whole match, then of each group: begin and end, or NONE

  // `form` with $1 or ${1} replaced by the group of this number (0: the whole match), and $$ by $.
  Text expand(std::string_view text, std::string_view form) const;
  // The position from which to search for the next match.
  size_t next() const { return bounds[1] + (bounds[1] == bounds[0]); }
};

class Pattern {
 public:
  // nullopt, with `problem`, if the pattern is invalid.
  static std::optional<Pattern> parse(std::string_view text, Text& problem);

  // The first match that begins at `from` or later.
  std::optional<Match> find(std::string_view text, size_t from) const;
  // The problem of a form for Match::expand; empty if there is none.
  Text check(std::string_view form) const;

  struct Range {
    uint32_t first, last;
  };
  // `x` and `y`: distances of instructions, or the number of a set or of a bound.
  struct Instruction {
    enum class Kind : uint8_t { Set, Split, Jump, Save, Begin, End };
    Kind kind;
    int32_t x = 0, y = 0;
  };
  using Code = std::vector<Instruction>;

 private:
  friend class PatternParser;

  Code code_;  // the end of a match
  std::vector<std::vector<Range>> sets_;
  uint32_t num_groups_ = 0;
};

}  // namespace declctrl
