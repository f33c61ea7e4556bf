// Messages for the author of a schema.
#pragma once
#include <vector>

#include "aici/text.hpp"

namespace aici::schema {

struct Problem {
  Text pointer;  // to the keyword (RFC 6901)
  Text keyword;
  Text message;
};

// "what at #/pointer: message", one per line; no newline at the end.
inline Text describe(const std::vector<Problem>& problems, std::string_view what) {
  Text text;
  for (const Problem& problem : problems)
    text << (text.empty() ? "" : "\n") << what << " at #" << problem.pointer << ": " << problem.message;
  return text;
}

struct Report {
  std::vector<Problem> problems;  // with any of these, nothing is generated
  std::vector<Problem> dropped;   // parts dropped because of Options::lenient
};

// Compact: at most one space after : and , and none elsewhere. None: no space at all. Spaced: exactly one space there.
// Flexible: at most one newline and an indentation wherever JSON allows white space inside the value.
enum class Space : uint8_t { Compact, None, Spaced, Flexible };

struct Options {
  Space space = Space::Compact;
  // Unsupported parts are dropped and listed in Report::dropped instead of refused.
  bool lenient = false;
  // An unknown `format` constrains nothing, as in the standard, and is listed; otherwise an unknown `format` is
  // refused.
  bool ignore_unknown_formats = false;
};

}  // namespace aici::schema
