#include "aici/substring.hpp"

#include <algorithm>

#include "aici/regex/intern.hpp"
#include "aici/sort.hpp"
#include "aici/suffix_array.hpp"

namespace aici {
namespace {

struct Word {
  uint32_t start, len;
  std::string_view in(std::string_view text) const { return text.substr(start, len); }
};

std::vector<Word> split(std::string_view text) {
  std::vector<Word> words;
  words.reserve(static_cast<size_t>(std::count(text.begin(), text.end(), ' ')) + 1);
  for (size_t start = 0; start <= text.size();) {
    size_t end = std::min(text.find(' ', start), text.size());
    words.push_back({static_cast<uint32_t>(start), static_cast<uint32_t>(end - start)});
    start = end + 1;
  }
  return words;
}

uint32_t hash(std::string_view text) {
  uint32_t hash = 0x811C9DC5;
  for (char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x01000193;
  return hash ^ hash >> 15;
}

// The rank of each word among the different words, sorted with the following space: a word that begins another word
// sorts after words that continue with a byte below the space. Sets `num_ranks`.
std::vector<uint32_t> rank(std::string_view text, const std::vector<Word>& words, uint32_t& num_ranks) {
  std::vector<uint32_t> first;  // for each different word, its first position
  std::vector<uint32_t> ranks;
  ranks.reserve(words.size());
  regex::InternTable table;
  auto word = [&](uint32_t number) { return words[first[number]].in(text); };
  for (uint32_t i = 0; i < words.size(); i++) {
    std::string_view here = words[i].in(text);
    auto equal = [&](uint32_t number) { return word(number) == here; };
    auto add = [&] { return first.push_back(i), static_cast<uint32_t>(first.size() - 1); };
    ranks.push_back(table.find_or_add(hash(here), equal, add));
  }
  num_ranks = static_cast<uint32_t>(first.size());
  std::vector<uint32_t> order(num_ranks), rank_of(num_ranks);
  for (uint32_t number = 0; number < num_ranks; number++) order[number] = number;
  sort(order, [&](uint32_t a, uint32_t b) {
    std::string_view left = word(a), right = word(b);
    size_t common = std::min(left.size(), right.size());
    if (int sign = left.substr(0, common).compare(right.substr(0, common))) return sign < 0;
    if (left.size() == right.size()) return false;
    return left.size() < right.size() ? ' ' < static_cast<uint8_t>(right[common]) : static_cast<uint8_t>(left[common]) < ' ';
  });
  for (uint32_t position = 0; position < num_ranks; position++) rank_of[order[position]] = position;
  for (uint32_t& number : ranks) number = rank_of[number];
  return ranks;
}

}  // namespace

WordSuffixes::WordSuffixes(Text text) : text_(static_cast<Text&&>(text)) {
  std::vector<Word> words = split(text_.view());
  uint32_t num_ranks = 0;
  std::vector<uint32_t> ranks = rank(text_.view(), words, num_ranks);
  starts_ = suffix_array(ranks, num_ranks);
  for (uint32_t& start : starts_) start = words[start].start;
}

std::optional<SubstringArgument> read_substring(std::string_view json, std::optional<json::Problem>& problem) {
  json::Reader reader(json);
  SubstringArgument argument;
  bool has_text = false, has_end = false;
  bool good = reader.expect('{', "expected {\"text\": ..., \"end\": ...}");
  while (good) {
    Text key;
    good = reader.string(key, "expected \"text\" or \"end\"");
    bool is_text = key.view() == "text";
    if (good && !is_text && key.view() != "end") good = reader.refuse("this key is not known: only \"text\" and \"end\" are");
    if (good && (is_text ? has_text : has_end)) good = reader.refuse("this key is there twice");
    good = good && reader.expect(':', "a colon is missing") &&
           reader.string(is_text ? argument.text : argument.end, "the value must be a string");
    (is_text ? has_text : has_end) = true;
    if (!reader.accept(',')) break;
  }
  good = good && reader.expect('}', "a comma or the end of the object is missing") && reader.end();
  if (good && !has_text) good = reader.refuse("\"text\" is missing");
  if (good && argument.text.empty()) good = reader.refuse("the text is empty");
  if (good && argument.text.size() > SubstringRecognizer::MAX_TEXT_BYTES) good = reader.refuse("the text is larger than 4 MiB");
  std::string_view text = argument.text.view();
  if (good && static_cast<size_t>(std::count(text.begin(), text.end(), ' ')) >= SubstringRecognizer::MAX_WORDS)
    good = reader.refuse("the text has more than 1048576 words");
  if (good && argument.end.size() > SubstringRecognizer::MAX_END_BYTES)
    good = reader.refuse("the end string is longer than 64 bytes");
  problem = reader.problem();
  if (!good) return std::nullopt;
  return argument;
}

SubstringRecognizer::SubstringRecognizer(SubstringArgument argument)
    : texts_(WordSuffixes(static_cast<Text&&>(argument.text))), end_(static_cast<Text&&>(argument.end)) {
  for (size_t k = 0; k < end_.size(); k++) end_has_[static_cast<uint8_t>(end_.view()[k])] |= uint64_t{1} << k;
}

SubstringRecognizer::State SubstringRecognizer::append(const State& state, uint8_t byte) {
  uint64_t begins = end_has_[byte] & 1 && is_run(state.range);
  State next{texts_.narrowed(state.range, byte), (state.ends << 1 | begins) & end_has_[byte]};
  // The space after the last word only marks the end; among finished suffixes, the suffix there sorts first.
  if (byte == ' ' && !next.range.empty() && texts_.texts().at(next.range.lo, next.range.depth) < 0) next.range.lo++;
  if (next.range.empty()) next.range = {0, 0, 0};
  return next;
}

}  // namespace aici
