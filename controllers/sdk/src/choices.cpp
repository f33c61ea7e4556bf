#include "aici/choices.hpp"

#include <algorithm>

namespace aici {

std::optional<ChoiceList> read_choices(std::string_view json, std::optional<json::Problem>& problem) {
  static constexpr std::string_view EXPECTED = "the choices must be a JSON array of strings";
  json::Reader reader(json);
  ChoiceList list;
  bool good = reader.expect('[', EXPECTED);
  if (good && reader.accept(']')) good = reader.refuse("there must be at least one choice");
  while (good) {
    size_t start = list.bytes_.size();
    good = reader.string(list.bytes_, EXPECTED);
    list.add(start);
    if (!reader.accept(',')) break;
  }
  good = good && reader.expect(']', "a comma or the end of the array is missing") && reader.end();
  problem = reader.problem();
  if (!good) return std::nullopt;
  list.sort();
  return list;
}

void ChoiceList::sort() {
  std::string_view bytes = bytes_.view();
  auto text = [bytes](const Choice& choice) { return bytes.substr(choice.start, choice.len); };
  std::sort(choices_.begin(), choices_.end(), [&](const Choice& a, const Choice& b) { return text(a) < text(b); });
  auto same = [&](const Choice& a, const Choice& b) { return text(a) == text(b); };
  choices_.erase(std::unique(choices_.begin(), choices_.end(), same), choices_.end());
}

}  // namespace aici
