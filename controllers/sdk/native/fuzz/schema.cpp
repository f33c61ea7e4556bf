// Input: a byte of options, a JSON Schema, a zero byte, then a walk. A text that reaches an end is JSON.
#include "aici/json_schema.hpp"

#include <algorithm>

#include "walk.hpp"

using namespace aici;

namespace {

void check_problems(const std::vector<schema::Problem>& problems, const json::Value& root) {
  for (const schema::Problem& problem : problems) {
    native::require(!problem.message.empty(), "a problem has a message");
    native::require(json::at_pointer(root, problem.pointer) != nullptr, "a problem points into the schema");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TokTrie trie = native::make_trie(native::with_all_bytes(native::common_words()));
  native::Input input(data, size);
  uint8_t bits = input.byte();
  schema::Options options{.space = static_cast<schema::Space>(bits & 3),
                          .lenient = (bits & 4) != 0,
                          .strict_schema = (bits & 8) != 0,
                          .objects = static_cast<schema::Objects>(bits >> 4 & 1),
                          .property_order = static_cast<schema::PropertyOrder>(bits >> 5 & 1)};
  std::string_view text = input.text();
  json::Value root;
  if (std::optional<json::SyntaxProblem> problem = json::parse(text, root)) {
    native::require(problem->line >= 1 && problem->line <= 1 + std::ranges::count(text, '\n'), "the line of a problem is in the text");
    native::require(problem->column >= 1 && problem->column <= text.size() + 1, "the column of a problem is in the text");
    return 0;
  }
  schema::Report report;
  std::optional<RegexRecognizer> recognizer = compile_json_schema(root, options, report);
  native::require(recognizer.has_value() == report.problems.empty(), "either an automaton or problems");
  native::require(options.lenient || !options.strict_schema || report.warnings.empty(), "a strict schema has problems, not warnings");
  check_problems(report.problems, root);
  check_problems(report.warnings, root);
  if (!recognizer) return 0;
  auto make = [&] {
    schema::Report unused;
    return StackRecognizer<RegexRecognizer>(*compile_json_schema(root, options, unused));
  };
  try {
    if (std::optional<std::string> ended = native::check_walk(make, trie, input)) {
      json::Value document;
      native::require(!json::parse(*ended, document), "what comes to an end is JSON");
    }
  } catch (const native::Failed&) {
  }
  return 0;
}
