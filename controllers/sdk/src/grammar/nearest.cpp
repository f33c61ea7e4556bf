#include <algorithm>

#include "syntax.hpp"

namespace aici::grammar {
namespace {

constexpr size_t MAX_LEN = 64;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; }

// Levenshtein's distance, ignoring the case of letters.
size_t distance(std::string_view x, std::string_view y) {
  size_t row[MAX_LEN + 1];
  for (size_t j = 0; j <= y.size(); j++) row[j] = j;
  for (size_t i = 1; i <= x.size(); i++) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= y.size(); j++) {
      size_t replaced = diagonal + (lower(x[i - 1]) != lower(y[j - 1]));
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[y.size()];
}

}  // namespace

std::string_view nearest(std::string_view name, const std::vector<std::string_view>& names) {
  std::string_view best;
  if (name.size() > MAX_LEN) return best;
  size_t least = name.size() / 3 + 1;
  for (std::string_view other : names) {
    if (other.size() > MAX_LEN) continue;
    size_t far = distance(name, other);
    if (far < least || (far == least && best.empty() && far < name.size())) least = far, best = other;
  }
  return best;
}

}  // namespace aici::grammar
