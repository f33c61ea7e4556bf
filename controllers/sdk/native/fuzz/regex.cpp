// Input: a pattern, a zero byte, then a walk.
#include "aici/regex.hpp"

#include "walk.hpp"

using namespace aici;

namespace {

// Code points, or bytes if the text is not UTF-8: no more than bytes in either case.
void check_problem(const regex::Problem& problem, std::string_view pattern) {
  native::require(problem.position <= pattern.size(), "the position of a problem is inside the pattern");
  native::require(!problem.message.empty(), "a problem has a message");
  native::require(!regex::describe(problem, pattern).empty(), "a problem can be described");
}

// The same text as a `pattern` of JSON Schema.
void check_search(std::string_view pattern) {
  regex::Exprs exprs;
  std::optional<regex::Problem> problem;
  regex::ExprId expr = regex::parse(pattern, exprs, problem, {.encoding = regex::Encoding::JsonString, .search = true});
  if (problem) return check_problem(*problem, pattern);
  native::require(expr != regex::NOTHING, "a pattern that is accepted is found in something");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TokTrie trie = native::make_trie(native::with_all_bytes(native::common_words()));
  native::Input input(data, size);
  std::string_view pattern = input.text();
  check_search(pattern);
  regex::Exprs exprs;
  std::optional<regex::Problem> problem;
  regex::ExprId expr = regex::parse(pattern, exprs, problem);
  if (problem) {
    check_problem(*problem, pattern);
    return 0;
  }
  native::require(expr != regex::NOTHING, "a pattern that is accepted matches something");
  try {
    native::check_walk([&] { return StackRecognizer<RegexRecognizer>(RegexRecognizer::from_pattern(pattern)); }, trie, input);
  } catch (const native::Failed&) {
  }
  return 0;
}
