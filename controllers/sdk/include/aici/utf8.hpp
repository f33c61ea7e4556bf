// Strict UTF-8: no surrogates, no overlong forms.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "aici/text.hpp"

namespace aici {

// The code point that starts at `at`, which moves behind it; nullopt, with `at` unchanged, if no whole code point
// starts there.
std::optional<uint32_t> next_code_point(std::string_view text, size_t& at);

// Append the code points of `text`. Stops at the first byte that is not UTF-8 and returns its offset.
std::optional<size_t> decode_utf8(std::string_view text, std::vector<uint32_t>& code_points);

void encode_utf8(uint32_t code_point, Text& out);

}  // namespace aici
