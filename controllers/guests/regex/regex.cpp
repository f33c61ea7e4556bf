// Generated text matches the regular expression given as the argument, as a whole.
#include "aici/regex.hpp"

#include <cstring>

#include "aici/recognizer_controller.hpp"

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

// For tools that check a pattern before a model is loaded (aici_controllers.regex_check); hosts do not call these.
extern "C" __attribute__((export_name("regex_alloc"))) char* regex_alloc(uint32_t size) {
  aici::start();
  return new char[size];
}

struct Report {
  uint32_t position, len;
  char text[];
};

// Null when the pattern is fine.
extern "C" __attribute__((export_name("regex_check"))) const Report* regex_check(const char* pattern, uint32_t len) {
  std::string_view text(pattern, len);
  std::optional<aici::regex::Problem> problem = aici::check_regex(text);
  if (!problem) return nullptr;
  const aici::Text& message = problem->message;
  auto* report = reinterpret_cast<Report*>(new uint32_t[2 + (message.size() + 3) / 4]);
  report->position = problem->position;
  report->len = static_cast<uint32_t>(message.size());
  memcpy(report->text, message.view().data(), message.size());
  return report;
}
