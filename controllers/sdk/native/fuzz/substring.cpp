// Input: the JSON argument, a zero byte, then a walk.
#include "aici/substring.hpp"

#include "walk.hpp"

using namespace aici;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TokTrie trie = native::make_trie(native::with_all_bytes(native::common_words()));
  native::Input input(data, size);
  std::string_view argument = input.text();
  std::optional<json::Problem> problem;
  std::optional<SubstringArgument> read = read_substring(argument, problem);
  native::require(read.has_value() != problem.has_value(), "either an argument or a problem");
  if (problem) {
    native::require(problem->position <= argument.size(), "the position of a problem is inside the argument");
    return 0;
  }
  auto make = [&] {
    std::optional<json::Problem> none;
    return StackRecognizer<SubstringRecognizer>(SubstringRecognizer(*read_substring(argument, none)));
  };
  native::check_walk(make, trie, input);
  return 0;
}
