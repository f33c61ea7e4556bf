// The one reader of JSON strings.
#pragma once
#include <string_view>

#include "aici/text.hpp"

namespace aici::json {

// Reads the string whose opening quote is text[at], appends what it means to `out` and leaves `at` after it. Null, or what is
// wrong, `at` then being the place: the string has no end, a control character, an unknown escape, half a surrogate pair,
// bytes that are not UTF-8.
const char* read_string(std::string_view text, size_t& at, Text& out);

}  // namespace aici::json
