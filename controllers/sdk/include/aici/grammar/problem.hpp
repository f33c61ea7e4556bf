// An error or a warning about a grammar.
#pragma once
#include <string_view>
#include <vector>

#include "aici/grammar/grammar.hpp"
#include "aici/text.hpp"

namespace aici::grammar {

enum class Severity : uint8_t { Warning, Error };

struct Problem {
  Severity severity;
  Place place;
  Text message;
  Text example{};  // an input that shows the problem; may be empty
};

inline bool has_errors(const std::vector<Problem>& problems) {
  for (const Problem& problem : problems)
    if (problem.severity == Severity::Error) return true;
  return false;
}

inline void add_error(std::vector<Problem>& problems, Place place, std::string_view message) {
  problems.push_back({Severity::Error, place, Text(message)});
}

inline void add_warning(std::vector<Problem>& problems, Place place, std::string_view message) {
  problems.push_back({Severity::Warning, place, Text(message)});
}

// "line 3, column 7: message\n example: ..."; no newline at the end.
Text describe(const Problem& problem);

}  // namespace aici::grammar
