#include "aici/schema/spelling.hpp"

#include <utility>

namespace aici::schema {
namespace {

constexpr size_t MIN_LEN = 4;  // any short word is near some other

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

size_t common_prefix(std::string_view x, std::string_view y) {
  size_t length = 0;
  while (length < x.size() && length < y.size() && lower(x[length]) == lower(y[length])) length++;
  return length;
}

// At most one letter apart, or with two letters swapped; capitals do not count.
bool is_near(std::string_view x, std::string_view y) {
  if (x.size() > y.size()) std::swap(x, y);
  if (y.size() - x.size() > 1) return false;
  size_t same = common_prefix(x, y);
  x.remove_prefix(same), y.remove_prefix(same);
  if (y.empty()) return true;
  if (x.size() == y.size() && x.size() > 1 && x[0] == y[1] && x[1] == y[0]) return common_prefix(x.substr(2), y.substr(2)) == x.size() - 2;
  std::string_view rest = y.substr(1);
  std::string_view other = x.size() == y.size() ? x.substr(1) : x;
  return common_prefix(rest, other) == rest.size();
}

}  // namespace

std::string_view neighbour(std::string_view word, std::span<const std::string_view> words) {
  for (std::string_view known : words)
    if (known.size() >= MIN_LEN && is_near(word, known)) return known;
  return {};
}

}  // namespace aici::schema
