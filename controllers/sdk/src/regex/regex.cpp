#include "aici/regex.hpp"

#include "aici/host.hpp"
#include "aici/regex/parser.hpp"

namespace aici {

std::optional<regex::Dfa> regex::compile(std::string_view pattern, std::optional<Problem>& problem, ParseOptions options) {
  Exprs exprs;
  bool is_short = pattern.size() <= Dfa::MAX_EXPRS;  // every byte of a pattern may become a part of it
  ExprId expr = is_short ? parse(pattern, exprs, problem, options) : NOTHING;
  if (problem) return std::nullopt;
  if (!is_short || !Dfa::fits(exprs, expr)) {
    problem = Problem{0, Text("the whole of it is too large: the automaton would outgrow its bounds")};
    return std::nullopt;
  }
  return Dfa(static_cast<Exprs&&>(exprs), expr);
}

RegexRecognizer RegexRecognizer::from_pattern(std::string_view pattern) {
  std::optional<regex::Problem> problem;
  std::optional<regex::Dfa> dfa = regex::compile(pattern, problem);
  if (problem) fail(regex::describe(*problem, pattern));
  return RegexRecognizer(static_cast<regex::Dfa&&>(*dfa));
}

RegexRecognizer::State RegexRecognizer::with_text(State state, std::string_view text) {
  if (text.back() != '"' || !dfa_.awaits_key(state)) return state;
  size_t start = text.size() - 1;
  auto is_escaped = [&] {
    size_t at = start;
    while (at > 0 && text[at - 1] == '\\') at--;
    return (start - at) % 2 == 1;
  };
  do start--;
  while (text[start] != '"' || is_escaped());
  return dfa_.with_key(state, text.substr(start));
}

// The end of a key, its value and the start of another entry; or a whole key.
bool RegexRecognizer::is_overlooked(std::string_view token) {
  constexpr std::string_view ENTRY = "\":,", KEY = ",\"\"";
  size_t entry = 0, key = 0;
  for (char byte : token) {
    entry += byte == ENTRY[entry], key += byte == KEY[key];
    if (entry == ENTRY.size() || key == KEY.size()) return true;
  }
  return false;
}

}  // namespace aici
