// The JSON of the guest ABI. Values stay slices of the parsed text. Malformed text ends the guest with an error,
// because only the runtime writes this JSON.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "aici/text.hpp"

namespace aici::json {

// The value of `key` in the object `text`, as a slice; nullopt if absent.
std::optional<std::string_view> get(std::string_view text, std::string_view key);

uint64_t number(std::string_view value);
std::vector<uint32_t> numbers(std::string_view array);
std::vector<std::string_view> elements(std::string_view array);

// The content between the quotes, for strings without escapes (names and hexadecimal strings).
std::string_view plain_string(std::string_view value);

// The text of a JSON string, escapes resolved; nullopt if invalid (aici/json_string.hpp).
std::optional<Text> unescaped(std::string_view value);

// `text` as a JSON string with quotes. Bytes that are not UTF-8 pass through.
Text quoted(std::string_view text);
Text array(const std::vector<uint32_t>& values);

}  // namespace aici::json
