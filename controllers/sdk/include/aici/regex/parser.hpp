// From the text of a regular expression to an expression over bytes.
//
// controllers/guests/regex/README.md describes the syntax: everything of Python's `re` that is regular; everything else
// is refused with name and position. Unless `search` is set, a match is a match of the whole text.
#pragma once
#include <optional>
#include <string_view>

#include "aici/regex/code_points.hpp"
#include "aici/regex/dfa.hpp"
#include "aici/regex/expr.hpp"
#include "aici/text.hpp"

namespace aici::regex {

// A problem of a pattern. `position` counts code points from 0 (bytes if the pattern is not UTF-8).
struct Problem {
  uint32_t position;
  Text message;
};

struct ParseOptions {
  Encoding encoding = Encoding::Utf8;
  // A match anywhere in the text is enough, and the dialect is ECMA-262: `pattern` of JSON Schema.
  bool search = false;
  // `(?~A)` is any text but A, `(?&A&B)` is what both A and B match: terminals of grammars.
  bool set_operators = false;
};

// Add the expression of `pattern` to `exprs`. If the pattern is refused, returns NOTHING and sets `problem`.
ExprId parse(std::string_view pattern, Exprs& exprs, std::optional<Problem>& problem, ParseOptions options = {});

// A whole pattern as an automaton; none, with `problem` set, if the pattern is refused.
std::optional<Dfa> compile(std::string_view pattern, std::optional<Problem>& problem, ParseOptions options = {});

// "regex error at position 2: what", the pattern near the position, and a caret below; no newline at the end.
Text describe(const Problem& problem, std::string_view pattern);

}  // namespace aici::regex
