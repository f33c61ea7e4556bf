// The whole generated text matches the regular expression in the argument.
#include "aici/regex.hpp"

#include "aici/host.hpp"
#include "aici/json.hpp"
#include "aici/recognizer_controller.hpp"
#include "aici/tool.hpp"

namespace {

using Constraint = aici::StackRecognizer<aici::RegexRecognizer>;

Constraint constraint_from_arg() {
  std::vector<char> arg = aici::module_arg();
  std::string_view pattern(arg.data(), arg.size());
  Constraint constraint(aici::RegexRecognizer::from_pattern(pattern));
  constexpr size_t SHOWN = 1000;
  std::string_view rest = pattern.size() > SHOWN ? "..." : "";
  aici::print((aici::Text("regex constraint: \"") << pattern.substr(0, SHOWN) << rest << "\"\n").view());
  return constraint;
}

struct RegexController : aici::RecognizerController<Constraint> {
  // The pattern comes first, so an invalid pattern is refused before the vocabulary is read.
  explicit RegexController(Constraint constraint = constraint_from_arg())
      : RecognizerController(aici::TokTrie::from_host(), static_cast<Constraint&&>(constraint)) {}
};

}  // namespace

AICI_EXPOSE(RegexController)

namespace {

bool is_true(std::optional<std::string_view> value) { return value && *value == "true"; }

// {"pattern", "json_string"?, "search"?, "text"?} -> {"position", "message", "shown"} if the pattern is refused, else
// {"matches", "viable"}: whether the text matches, and the length in bytes of its longest prefix that begins a match.
aici::Text check(std::string_view question) {
  namespace regex = aici::regex;
  aici::Text pattern = *aici::json::unescaped(*aici::json::get(question, "pattern"));
  regex::ParseOptions options;
  if (is_true(aici::json::get(question, "json_string"))) options.encoding = regex::Encoding::JsonString;
  options.search = is_true(aici::json::get(question, "search"));
  std::optional<regex::Problem> problem;
  std::optional<regex::Dfa> compiled = regex::compile(pattern.view(), problem, options);
  if (problem) {
    aici::Text answer("{\"position\":");
    answer << problem->position << ",\"message\":" << aici::json::quoted(problem->message);
    return answer << ",\"shown\":" << aici::json::quoted(regex::describe(*problem, pattern.view())) << '}';
  }
  aici::Text text = *aici::json::unescaped(aici::json::get(question, "text").value_or("\"\""));
  regex::Dfa& dfa = *compiled;
  regex::StateId state = dfa.start();
  uint32_t viable = 0;
  for (char byte : text.view()) {
    state = dfa.next(state, static_cast<uint8_t>(byte));
    if (state == regex::Dfa::DEAD) break;
    viable++;
  }
  if (dfa.error()) aici::fail(dfa.error());
  aici::Text answer("{\"matches\":");
  return answer << (dfa.accepts(state) ? "true" : "false") << ",\"viable\":" << viable << '}';
}

}  // namespace

AICI_EXPOSE_TOOL(check)
