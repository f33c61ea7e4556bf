// UTF-8, strictly: no surrogates, no overlong forms.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "aici/text.hpp"

namespace aici {

// The code point that starts at `at`, which moves past it; nullopt, and `at` stays, where no whole code point starts.
std::optional<uint32_t> next_code_point(std::string_view text, size_t& at);

// Appends the code points of `text`. At the first byte that is not UTF-8 it stops and returns that byte's offset.
std::optional<size_t> decode_utf8(std::string_view text, std::vector<uint32_t>& code_points);

void encode_utf8(uint32_t code_point, Text& out);

}  // namespace aici
