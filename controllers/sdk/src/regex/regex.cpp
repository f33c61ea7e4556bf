#include "aici/regex.hpp"

#include "aici/host.hpp"

namespace aici {

RegexRecognizer RegexRecognizer::from_pattern(std::string_view pattern) {
  regex::Exprs exprs;
  std::optional<regex::Problem> problem;
  regex::ExprId expr = regex::parse(pattern, exprs, problem);
  if (problem) fail(regex::describe(*problem, pattern));
  return RegexRecognizer(regex::Dfa(static_cast<regex::Exprs&&>(exprs), expr));
}

}  // namespace aici
