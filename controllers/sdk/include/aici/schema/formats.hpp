// What the keyword `format` demands.
#pragma once
#include <string_view>

#include "aici/schema/numbers.hpp"
#include "aici/schema/strings.hpp"

namespace aici::schema {

// A format of strings: texts that match `head`, then `pattern`, and do not match `except`.
struct StringFormat {
  std::string_view name, pattern;
  uint32_t max_len = regex::UNBOUNDED;  // in code points
  std::string_view except = {};
  std::string_view head = {};
  uint32_t max_head_len = regex::UNBOUNDED;
};

// A format of numbers. An empty bound is none.
struct NumberFormat {
  std::string_view name;
  Numbers::Whole whole;
  std::string_view min, max;
};

// Null: no format of strings (of numbers) has this name.
const StringFormat* string_format(std::string_view name);
const NumberFormat* number_format(std::string_view name);

Strings strings_of(const StringFormat& format, StringLanguages& languages, regex::Exprs& exprs);
Numbers numbers_of(const NumberFormat& format);

}  // namespace aici::schema
