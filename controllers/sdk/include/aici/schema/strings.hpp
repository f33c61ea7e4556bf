// Sets of JSON strings, and the texts of their members.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "aici/regex/expr.hpp"
#include "aici/text.hpp"

namespace aici::schema {

// All conditions must hold. Languages describe the text between the quotes, in every JSON spelling. `values`, if given,
// is the sorted list of allowed values.
struct Strings {
  uint32_t min_len = 0, max_len = regex::UNBOUNDED;  // in code points
  std::vector<regex::ExprId> languages{};
  std::optional<std::vector<std::string_view>> values{};

  bool is_limited() const { return min_len > 0 || max_len != regex::UNBOUNDED || !languages.empty() || values; }
};

// Expressions of strings, cached.
class StringLanguages {
 public:
  explicit StringLanguages(regex::Exprs& exprs);

  regex::ExprId any() const { return any_; }
  regex::ExprId length(uint32_t min, uint32_t max) { return exprs_.repeat(character_, min, max); }
  regex::ExprId spellings(std::string_view text);  // between the quotes
  regex::ExprId quoted(std::string_view text);     // in the single spelling of keys and listed values, with quotes
  Text canonical_quoted(std::string_view text);    // the same as text
  regex::ExprId in_quotes(regex::ExprId content);
  regex::ExprId outside(regex::ExprId language) { return exprs_.both(any_, exprs_.complement(language)); }
  // One of `texts`, sorted, in quotes: built as a tree, faster than one by one.
  regex::ExprId quoted_list(const std::vector<std::string_view>& texts);
  regex::ExprId language(const Strings& strings);  // with the quotes
  regex::ExprId content(const Strings& strings);   // between the quotes, in all spellings
  regex::ExprId plain_language(const Strings& strings);  // with the quotes, in the spelling of keys and listed values
  regex::ExprId plain(regex::ExprId content);            // between the quotes, in this spelling

  bool matches(regex::ExprId language, std::string_view text);
  bool has(const Strings& strings, std::string_view text);  // values not considered

 private:
  regex::ExprId plain_character();

  regex::Exprs& exprs_;
  regex::ExprId character_, any_;
};

// Returns false if lengths and values show that the intersection is empty.
bool intersect(const Strings& x, const Strings& y, StringLanguages& languages, Strings& both);

// The complement, as a union.
std::vector<Strings> complement(const Strings& strings, StringLanguages& languages);

}  // namespace aici::schema
