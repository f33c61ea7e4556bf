// Generated text matches the regular expression given as the argument, as a whole.
#include "aici/regex.hpp"

#include "aici/json.hpp"
#include "aici/recognizer_controller.hpp"
#include "aici/tool.hpp"

namespace {

using Constraint = aici::StackRecognizer<aici::RegexRecognizer>;

Constraint constraint_from_arg() {
  std::vector<char> arg = aici::module_arg();
  std::string_view pattern(arg.data(), arg.size());
  Constraint constraint(aici::RegexRecognizer::from_pattern(pattern));
  aici::print((aici::Text("regex constraint: \"") << pattern << "\"\n").view());
  return constraint;
}

struct RegexController : aici::RecognizerController<Constraint> {
  // The pattern comes first: a bad one is refused before the vocabulary is read.
  explicit RegexController(Constraint constraint = constraint_from_arg())
      : RecognizerController(aici::TokTrie::from_host(), static_cast<Constraint&&>(constraint)) {}
};

}  // namespace

AICI_EXPOSE(RegexController)

namespace {

// {"pattern"} -> {} when the pattern is fine, else {"position", "message"}.
aici::Text check(std::string_view question) {
  std::string_view quoted = *aici::json::get(question, "pattern");
  std::optional<aici::Text> pattern = aici::json::unescaped(quoted);
  std::optional<aici::regex::Problem> problem = aici::check_regex(pattern->view());
  if (!problem) return aici::Text("{}");
  aici::Text answer("{\"position\":");
  return answer << problem->position << ",\"message\":" << aici::json::quoted(problem->message) << '}';
}

}  // namespace

AICI_EXPOSE_TOOL(check)
