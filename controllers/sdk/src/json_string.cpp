#include "aici/json_string.hpp"

#include <cstdint>
#include <optional>

#include "aici/utf8.hpp"

namespace aici::json {
namespace {

constexpr const char* UNKNOWN_ESCAPE = "JSON knows no such escape";
constexpr const char* HALF_A_PAIR = "half a surrogate pair is not a character";

// The code unit of \uXXXX at text[at]; `at` moves only past one.
std::optional<uint32_t> code_unit(std::string_view text, size_t& at) {
  if (text.substr(at, 2) != "\\u") return std::nullopt;
  uint32_t code = 0;
  for (size_t i = at + 2; i < at + 6; i++) {
    char c = i < text.size() ? text[i] : '\0';
    char lower = static_cast<char>(c | 0x20);
    bool is_letter = lower >= 'a' && lower <= 'f';
    if (!is_letter && (c < '0' || c > '9')) return std::nullopt;
    code = code * 16 + static_cast<uint32_t>(is_letter ? lower - 'a' + 10 : c - '0');
  }
  at += 6;
  return code;
}

const char* read_escape(std::string_view text, size_t& at, Text& out) {
  static constexpr std::string_view LETTERS = "\"\\/bfnrt", MEANINGS = "\"\\/\b\f\n\r\t";
  size_t letter = at + 1 < text.size() ? LETTERS.find(text[at + 1]) : std::string_view::npos;
  if (letter != std::string_view::npos) {
    out << MEANINGS[letter];
    at += 2;
    return nullptr;
  }
  size_t next = at;
  std::optional<uint32_t> code = code_unit(text, next);
  if (!code) return UNKNOWN_ESCAPE;
  if (*code >= 0xD800 && *code < 0xDC00) {
    std::optional<uint32_t> low = code_unit(text, next);
    if (!low || *low < 0xDC00 || *low > 0xDFFF) return HALF_A_PAIR;
    code = 0x10000 + ((*code - 0xD800) << 10) + (*low - 0xDC00);
  } else if (*code >= 0xDC00 && *code <= 0xDFFF) {
    return HALF_A_PAIR;
  }
  encode_utf8(*code, out);
  at = next;
  return nullptr;
}

}  // namespace

const char* read_string(std::string_view text, size_t& at, Text& out) {
  at++;
  while (at < text.size() && text[at] != '"') {
    auto byte = static_cast<uint8_t>(text[at]);
    if (byte == '\\') {
      if (const char* why = read_escape(text, at, out)) return why;
    } else if (byte < 0x20) {
      return "a control character in a string must be escaped";
    } else if (byte < 0x80) {
      out << text[at++];
    } else {
      size_t start = at;
      if (!next_code_point(text, at)) return "not UTF-8";
      out << text.substr(start, at - start);
    }
  }
  if (at >= text.size()) return "the string does not end";
  at++;
  return nullptr;
}

}  // namespace aici::json
