// How a refused pattern is shown.
#include "aici/regex/parser.hpp"
#include "aici/utf8.hpp"

namespace aici::regex {

Text describe(const Problem& problem, std::string_view pattern) {
  constexpr size_t CONTEXT = 40;
  std::vector<uint32_t> text;
  decode_utf8(pattern, text);
  size_t first = problem.position > CONTEXT ? problem.position - CONTEXT : 0;
  Text out("regex error at position ");
  out << problem.position << ": " << problem.message << "\n  ";
  for (size_t i = first; i < text.size() && i < problem.position + CONTEXT; i++)
    encode_utf8(text[i] < 0x20 || text[i] == 0x7F ? 0xB7 : text[i], out);  // one column each, whatever it is
  out << "\n  ";
  for (size_t i = first; i < problem.position; i++) out << ' ';
  return out << '^';
}

}  // namespace aici::regex
