// The generated text is one of the texts in the argument, a JSON array of strings.
#include "aici/choices.hpp"

#include "aici/json.hpp"
#include "aici/recognizer_controller.hpp"
#include "aici/tool.hpp"

namespace {

using Constraint = aici::StackRecognizer<aici::ChoicesRecognizer>;

Constraint constraint_from_arg() {
  std::vector<char> arg = aici::module_arg();
  std::string_view json(arg.data(), arg.size());
  std::optional<aici::json::Problem> problem;
  std::optional<aici::ChoiceList> choices = aici::read_choices(json, problem);
  if (problem) aici::fail(aici::json::describe(*problem, json));
  return Constraint(aici::ChoicesRecognizer(static_cast<aici::ChoiceList&&>(*choices)));
}

struct Choices : aici::RecognizerController<Constraint> {
  explicit Choices(Constraint constraint = constraint_from_arg())
      : RecognizerController(aici::TokTrie::from_host(), static_cast<Constraint&&>(constraint)) {}
};

}  // namespace

AICI_EXPOSE(Choices)

namespace {

// {"choices"} -> {} if valid, else {"position", "message"}.
aici::Text check(std::string_view question) {
  std::optional<aici::json::Problem> problem;
  aici::read_choices(*aici::json::get(question, "choices"), problem);
  return aici::json::answer(problem);
}

}  // namespace

AICI_EXPOSE_TOOL(check)
