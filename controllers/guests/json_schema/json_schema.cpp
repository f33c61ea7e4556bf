// The generated text is JSON allowed by the schema in the argument: {"schema", "whitespace", "lenient", "strict_schema",
// "objects", "property_order"}.
#include "aici/json_schema.hpp"

#include "aici/json.hpp"
#include "aici/json_value.hpp"
#include "aici/recognizer_controller.hpp"
#include "aici/schema/options.hpp"
#include "aici/tool.hpp"

namespace {

using aici::Text;
using aici::json::Value;
using aici::schema::Problem;
using aici::schema::Report;
using Constraint = aici::StackRecognizer<aici::RegexRecognizer>;

void add_problem(Report& report, std::string_view pointer, std::string_view message) {
  report.problems.push_back({Text(pointer), Text(), Text(message)});
}

std::optional<aici::schema::Options> read_options(const Value& argument, Report& report) {
  aici::schema::Options options;
  for (size_t i = 0; i < argument.keys.size(); i++) {
    std::string_view key = argument.keys[i];
    if (key == "schema" || key == "texts" || aici::schema::read_option(key, argument.items[i], options)) continue;
    Text why("the argument's ");
    add_problem(report, "", why << aici::json::quoted(key)
                                << " is wrong: " << aici::schema::OPTIONS_HELP << ", \"schema\" the schema; nothing else");
  }
  if (!argument.is(Value::Kind::Object) || !argument.find("schema")) add_problem(report, "", "the argument is an object with a \"schema\"");
  if (!report.problems.empty()) return std::nullopt;
  return options;
}

std::optional<aici::RegexRecognizer> compile(std::string_view argument, Value& value, Report& report) {
  if (std::optional<aici::json::SyntaxProblem> problem = aici::json::parse(argument, value)) {
    Text why("the argument is not JSON: line ");
    add_problem(report, "", why << problem->line << ", column " << problem->column << ": " << problem->message);
    return std::nullopt;
  }
  std::optional<aici::schema::Options> options = read_options(value, report);
  if (!options) return std::nullopt;
  return aici::compile_json_schema(*value.find("schema"), *options, report);
}

Constraint constraint_from_arg() {
  std::vector<char> argument = aici::module_arg();
  Report report;
  Value value;
  std::optional<aici::RegexRecognizer> recognizer = compile({argument.data(), argument.size()}, value, report);
  if (!report.warnings.empty()) aici::print((describe(report.warnings, "json schema: not enforced") << '\n').view());
  if (!recognizer) aici::fail(describe(report.problems, "json schema error"));
  return Constraint(static_cast<aici::RegexRecognizer&&>(*recognizer));
}

struct JsonSchemaController : aici::RecognizerController<Constraint> {
  // The schema comes first, so an invalid schema is refused before the vocabulary is read.
  explicit JsonSchemaController(Constraint constraint = constraint_from_arg())
      : RecognizerController(aici::TokTrie::from_host(), static_cast<Constraint&&>(constraint)) {}
};

Text as_json(const std::vector<Problem>& problems) {
  Text out("[");
  for (size_t i = 0; i < problems.size(); i++)
    out << (i ? "," : "") << "{\"pointer\":" << aici::json::quoted(problems[i].pointer)
        << ",\"keyword\":" << aici::json::quoted(problems[i].keyword) << ",\"message\":" << aici::json::quoted(problems[i].message)
        << '}';
  return out << ']';
}

// null if `text` is accepted, else the length in bytes of its longest prefix that begins an accepted text.
Text walk(Constraint& constraint, std::string_view text) {
  size_t pushed = 0;
  while (pushed < text.size() && constraint.try_push_byte(static_cast<uint8_t>(text[pushed]))) pushed++;
  bool accepted = pushed == text.size() && constraint.special_allowed(aici::SpecialToken::EndOfSequence);
  constraint.pop_bytes(pushed);
  constraint.trie_finished();
  return accepted ? Text("null") : Text() << pushed;
}

// The argument, and optionally "texts" -> {"problems", "warnings"}, lists of {"pointer", "keyword", "message"}, and
// "texts": for each text null if accepted, else the length in bytes of its longest prefix that begins an accepted text.
Text check(std::string_view question) {
  Report report;
  Value value;
  std::optional<aici::RegexRecognizer> recognizer = compile(question, value, report);
  Text walks("[");
  if (const Value* texts = value.find("texts"); texts && recognizer) {
    Constraint constraint(static_cast<aici::RegexRecognizer&&>(*recognizer));
    for (size_t i = 0; i < texts->items.size(); i++) walks << (i ? "," : "") << walk(constraint, texts->items[i].text);
    if (const char* error = constraint.error()) {
      add_problem(report, "", Text("a text is too much for this schema: ") << error);
      walks = Text("[");
    }
  }
  return Text("{\"problems\":") << as_json(report.problems) << ",\"warnings\":" << as_json(report.warnings) << ",\"texts\":" << walks << "]}";
}

}  // namespace

AICI_EXPOSE(JsonSchemaController)
AICI_EXPOSE_TOOL(check)
