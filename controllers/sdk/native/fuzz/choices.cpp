// Input: a JSON array of strings, a zero byte, then a walk.
#include "aici/choices.hpp"

#include "walk.hpp"

using namespace aici;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TokTrie trie = native::make_trie(native::with_all_bytes(native::common_words()));
  native::Input input(data, size);
  std::string_view argument = input.text();
  std::optional<json::Problem> problem;
  std::optional<ChoiceList> choices = read_choices(argument, problem);
  native::require(choices.has_value() != problem.has_value(), "either a list or a problem");
  if (problem) {
    native::require(problem->position <= argument.size(), "the position of a problem is inside the argument");
    native::require(!json::describe(*problem, argument).empty(), "a problem can be described");
    return 0;
  }
  for (uint32_t i = 0; i < choices->num(); i++) {
    uint32_t depth = 0;
    while (choices->at(i, depth) >= 0) depth++;
    if (i == 0) continue;
    uint32_t same = 0;
    while (choices->at(i, same) >= 0 && choices->at(i, same) == choices->at(i - 1, same)) same++;
    native::require(choices->at(i - 1, same) < choices->at(i, same), "choices are sorted, and no two are the same");
  }
  auto make = [&] {
    std::optional<json::Problem> none;
    return StackRecognizer<ChoicesRecognizer>(ChoicesRecognizer(*read_choices(argument, none)));
  };
  native::check_walk(make, trie, input);
  return 0;
}
