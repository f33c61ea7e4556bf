// The only reader of JSON strings.
#pragma once
#include <string_view>

#include "aici/text.hpp"

namespace aici::json {

// Read the string whose opening quote is text[at], append its text to `out`, and move `at` behind the string. Returns
// null, or the problem with `at` at its position: no end, a control character, an unknown escape, half a surrogate
// pair, or bytes that are not UTF-8.
const char* read_string(std::string_view text, size_t& at, Text& out);

}  // namespace aici::json
