#include "aici/json_schema.hpp"

#include "aici/schema/lowering.hpp"

namespace aici {
namespace {

constexpr std::string_view NO_VALUE = "no value satisfies this schema";

// The warning that arrays were left out, which could have been all that is allowed.
const schema::Problem* left_out_arrays(const schema::Report& report) {
  for (const schema::Problem& warning : report.warnings)
    if (warning.message.view() == schema::REPEATS_LEFT_OUT) return &warning;
  return nullptr;
}

std::optional<RegexRecognizer> compiled(const json::Value& root, const schema::Options& options, schema::Report& report) {
  regex::Exprs exprs;
  schema::StringLanguages strings(exprs);
  schema::Evaluator evaluator(root, exprs, strings, options, report);
  regex::ExprId texts = schema::Lowering(evaluator, exprs, strings, options).texts(evaluator.conj_of(root));
  if (!report.problems.empty()) return std::nullopt;
  texts = exprs.settle(texts);
  if (exprs.error()) {
    evaluator.refuse(root, "", exprs.error());
  } else if (const schema::Problem* left_out = texts == regex::NOTHING ? left_out_arrays(report) : nullptr) {
    report.problems.push_back({Text(left_out->pointer.view()), Text("uniqueItems"), Text("negated beside prefixItems or contains: not supported, and nothing else is left")});
  } else if (texts == regex::NOTHING) {
    evaluator.refuse(root, "", NO_VALUE);
  } else if (!regex::Dfa::fits(exprs, texts)) {
    evaluator.refuse(root, "", "the schema is too large: shorten its lists of values, or split it");
  }
  if (!report.problems.empty()) return std::nullopt;
  return RegexRecognizer(regex::Dfa(static_cast<regex::Exprs&&>(exprs), texts));
}

}  // namespace

// If the objects that are closed by default leave no value, the objects are open: an object of a recursive schema may
// need a key that its schema does not name.
std::optional<RegexRecognizer> compile_json_schema(const json::Value& root, const schema::Options& options, schema::Report& report) {
  std::optional<RegexRecognizer> recognizer = compiled(root, options, report);
  bool is_empty = report.problems.size() == 1 && report.problems[0].message.view() == NO_VALUE;
  if (!is_empty || options.objects == schema::Objects::Open) return recognizer;
  schema::Options open = options;
  open.objects = schema::Objects::Open;
  schema::Report report_of_open;
  recognizer = compiled(root, open, report_of_open);
  if (!recognizer) return std::nullopt;
  report = static_cast<schema::Report&&>(report_of_open);
  report.warnings.push_back({Text(), Text(), Text("closed objects allow no value: all objects are open")});
  return recognizer;
}

}  // namespace aici
