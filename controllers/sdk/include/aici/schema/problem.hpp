// Messages for the author of a schema.
#pragma once
#include <vector>

#include "aici/regex/entries.hpp"
#include "aici/text.hpp"

namespace aici::regex {
class Exprs;
}

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
  static constexpr size_t MAX_WARNINGS = 100;

  std::vector<Problem> problems;  // with any of these, nothing is generated
  std::vector<Problem> warnings;  // parts of the schema that are not enforced: the first MAX_WARNINGS
};

// Compact: at most one space after : and , and none elsewhere. None: no space at all. Spaced: exactly one space there.
// Flexible: at most one newline and an indentation wherever JSON allows white space inside the value.
enum class Space : uint8_t { Compact, None, Spaced, Flexible };

// Objects whose schema has `properties` and says nothing of further keys. Closed: no further keys. Open: any.
enum class Objects : uint8_t { Closed, Open };

// Declared: keys come in the order of the schema. Any: in every order.
enum class PropertyOrder : uint8_t { Declared, Any };

// The sentences of a grammar, as they stand inside the quotes of a JSON string. NOTHING, with `why`, if it is refused.
using ReadGrammar = regex::ExprId (*)(std::string_view text, regex::Exprs& exprs, Text& why);

struct Options {
  Space space = Space::Compact;
  // A keyword that is known and cannot be honoured is dropped with a warning; otherwise the keyword is refused.
  bool lenient = false;
  // Annotations that look like constraints are refused: unknown keywords, unknown formats, formats of another type, and
  // formats beside a pattern. Otherwise they constrain nothing, and are warnings.
  bool strict_schema = false;
  Objects objects = Objects::Closed;
  PropertyOrder property_order = PropertyOrder::Declared;
  ReadGrammar read_grammar = nullptr;  // of the keyword x-aici-grammar; null: refused
};

}  // namespace aici::schema
