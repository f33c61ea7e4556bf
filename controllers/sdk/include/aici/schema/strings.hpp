// Sets of JSON strings, and the texts that stand for their members.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "aici/regex/expr.hpp"
#include "aici/text.hpp"

namespace aici::schema {

// All conditions together. Languages are those of the text between the quotes, in every spelling that JSON has for it.
// `values`, when there is one, is the list to choose from; sorted.
struct Strings {
  uint32_t min_len = 0, max_len = regex::UNBOUNDED;  // in code points
  std::vector<regex::ExprId> languages{};
  std::optional<std::vector<std::string_view>> values{};
};

// Expressions of strings. What is asked for twice is made once.
class StringLanguages {
 public:
  explicit StringLanguages(regex::Exprs& exprs);

  regex::ExprId any() const { return any_; }
  regex::ExprId length(uint32_t min, uint32_t max) { return exprs_.repeat(character_, min, max); }
  regex::ExprId spellings(std::string_view text);  // between the quotes
  regex::ExprId quoted(std::string_view text);     // in the one spelling that keys and listed values have, with the quotes
  Text canonical_quoted(std::string_view text);    // the same as text
  regex::ExprId in_quotes(regex::ExprId content);
  regex::ExprId outside(regex::ExprId language) { return exprs_.both(any_, exprs_.complement(language)); }
  // One of `texts`, sorted, in quotes: made as a tree, quicker than one by one.
  regex::ExprId quoted_list(const std::vector<std::string_view>& texts);
  regex::ExprId language(const Strings& strings);  // with the quotes
  regex::ExprId content(const Strings& strings);   // between the quotes, in all spellings

  bool matches(regex::ExprId language, std::string_view text);
  bool has(const Strings& strings, std::string_view text);  // values not considered

 private:
  regex::Exprs& exprs_;
  regex::ExprId character_, any_;
};

// False when nothing is in both, as far as lengths and values show it.
bool intersect(const Strings& x, const Strings& y, StringLanguages& languages, Strings& both);

// The strings outside, as a union.
std::vector<Strings> complement(const Strings& strings, StringLanguages& languages);

// The language of a `format`, as a regular expression for the whole string; empty when there is no such format.
std::string_view format_pattern(std::string_view format);

}  // namespace aici::schema
