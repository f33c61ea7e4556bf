// From the text of a regular expression to an expression over bytes.
//
// Syntax: literals; . (any code point but \n); classes [a-z] [^a-z] with escapes within; \d \w \s \D \W \S (ASCII);
// \n \t \r \f \v \0 \xHH \uHHHH (code points); \ before ASCII punctuation or space; ( ) (?: ); |; ? * + {m} {m,} {m,n},
// lazy forms of these mean the same; (?i) at the start (ASCII letters; others keep their case); ^ at the start and $ at
// the end are redundant. A match is a match of the whole text. Everything else is refused by name.
#pragma once
#include <optional>
#include <string_view>

#include "aici/regex/expr.hpp"
#include "aici/text.hpp"

namespace aici::regex {

// What is wrong with a pattern. `position` counts code points from 0 (bytes if the pattern is not UTF-8).
struct Problem {
  uint32_t position;
  Text message;
};

// Adds the expression of `pattern` to `exprs`. When it is refused, returns NOTHING and sets `problem`.
ExprId parse(std::string_view pattern, Exprs& exprs, std::optional<Problem>& problem);

// "regex error at position 2: what", the pattern around the position, and a caret under it; no newline at the end.
Text describe(const Problem& problem, std::string_view pattern);

}  // namespace aici::regex
