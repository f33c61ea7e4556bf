// Show a refused pattern.
#include "aici/regex/parser.hpp"
#include "aici/utf8.hpp"
#include "unicode.hpp"

namespace aici::regex {
namespace {

// Two columns wide on terminals: the blocks that hold East Asian wide characters and emoji.
constexpr CodePointRange WIDE[] = {{0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0xA4CF}, {0xA960, 0xA97F},
                                   {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE30, 0xFE6F}, {0xFF01, 0xFF60},
                                   {0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF},
                                   {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};

// Control characters are shown as one column.
uint32_t shown(uint32_t c) { return c < 0x20 || c == 0x7F ? 0xB7 : c; }

uint32_t num_columns(uint32_t c, const CodePoints& narrow) {
  for (CodePointRange range : WIDE)
    if (range.first <= c && c <= range.last) return 2;
  return narrow.has(c) ? 0 : 1;
}

}  // namespace

Text describe(const Problem& problem, std::string_view pattern) {
  constexpr size_t CONTEXT = 40;
  std::vector<uint32_t> text;
  decode_utf8(pattern, text);
  size_t first = problem.position > CONTEXT ? problem.position - CONTEXT : 0;
  CodePoints narrow = *unicode_property("Mn");
  Text out("regex error at position "), caret;
  out << problem.position << ": " << problem.message << "\n  ";
  for (size_t i = first; i < text.size() && i < problem.position + CONTEXT; i++) {
    encode_utf8(shown(text[i]), out);
    for (uint32_t n = num_columns(text[i], narrow); n > 0 && i < problem.position; n--) caret << ' ';
  }
  return out << "\n  " << caret << '^';
}

}  // namespace aici::regex
