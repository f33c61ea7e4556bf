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

}  // namespace aici
