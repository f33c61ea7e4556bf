// A part of a pattern, sorted by its assertions about its beginning and end: ^a|b$ is "a, at the start of the text, or
// b, at its end". Assertions move outwards as parts are combined. For the whole pattern an assertion holds (if the
// whole text must match), or restricts the text around a match.
#pragma once
#include <array>
#include <span>

#include "aici/regex/code_points.hpp"

namespace aici::regex {

// In ascending strength: each assertion holds wherever the next one holds.
enum class Begin : uint8_t { Anywhere, NonWord, Line, Text };  // NonWord: no word character is beside
enum class End : uint8_t { Anywhere, NonWord, Line, LastLine, Text };  // LastLine: before \n at the end of the text, or there

class Anchored {
 public:
  Anchored() = default;  // matches nothing
  Anchored(ExprId expr) { at(Begin::Anywhere, End::Anywhere) = expr; }
  static Anchored assertion(Begin begin, End end) {
    Anchored empty;
    empty.at(begin, end) = EMPTY;
    return empty;
  }

  bool operator==(const Anchored&) const = default;
  bool is_nothing() const;
  bool asserts() const;                       // anything at all
  ExprId plain() const { return exprs_[0]; }  // parts without assertions

  static Anchored concat(Exprs& exprs, Encoding encoding, const Anchored& first, const Anchored& second);
  static Anchored alt(Exprs& exprs, std::span<const Anchored> members);

  // The part for texts that begin with each assertion, and everything that may follow, up to the end of the text. `end`
  // holds at the end of the part.
  Anchored up_to_end(Exprs& exprs, Encoding encoding, End end) const;
  // Each part without the texts that are not in `texts`.
  Anchored within(Exprs& exprs, ExprId texts) const;
  // The parts that begin with this assertion, and the parts that do not begin at the start of the text.
  Anchored beginning(Begin begin) const;
  Anchored elsewhere() const;
  bool ends_the_text() const;  // every part ends at the end of the text
  bool asserts_begin() const;
  bool is_end_of_text(End end) const;  // matches nothing but the end of the text, if `end` holds at its end

  // The texts that match as a whole.
  ExprId whole(Exprs& exprs) const;
  // The texts that match somewhere inside.
  ExprId anywhere(Exprs& exprs, Encoding encoding) const;

 private:
  static constexpr size_t BEGINS = 4, ENDS = 5;
  ExprId& at(Begin begin, End end) { return exprs_[static_cast<size_t>(begin) * ENDS + static_cast<size_t>(end)]; }

  std::array<ExprId, BEGINS * ENDS> exprs_{};  // NOTHING
};

}  // namespace aici::regex
