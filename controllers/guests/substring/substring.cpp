// The generated text is a run of words of the text in the argument, {"text": ..., "end": ...}, then the end string.
#include "aici/substring.hpp"

#include "aici/recognizer_controller.hpp"
#include "aici/tool.hpp"

namespace {

using Constraint = aici::StackRecognizer<aici::SubstringRecognizer>;

aici::SubstringArgument read_arg() {
  std::vector<char> arg = aici::module_arg();
  std::string_view json(arg.data(), arg.size());
  std::optional<aici::json::Problem> problem;
  std::optional<aici::SubstringArgument> argument = aici::read_substring(json, problem);
  if (problem) aici::fail(aici::json::describe(*problem, json));
  return static_cast<aici::SubstringArgument&&>(*argument);
}

struct Substring : aici::RecognizerController<Constraint> {
  explicit Substring(Constraint constraint = Constraint(aici::SubstringRecognizer(read_arg())))
      : RecognizerController(aici::TokTrie::from_host(), static_cast<Constraint&&>(constraint)) {}
};

}  // namespace

AICI_EXPOSE(Substring)

namespace {

// {"text", "end"} -> {} if valid, else {"position", "message"}.
aici::Text check(std::string_view question) {
  std::optional<aici::json::Problem> problem;
  aici::read_substring(question, problem);
  return aici::json::answer(problem);
}

}  // namespace

AICI_EXPOSE_TOOL(check)
