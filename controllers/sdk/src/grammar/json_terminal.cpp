#include "json_terminal.hpp"

#include "aici/grammar/scannerless.hpp"
#include "aici/json_value.hpp"
#include "aici/schema/lowering.hpp"
#include "aici/schema/options.hpp"

namespace aici::grammar {
namespace {

constexpr std::string_view OPTIONS = "x-aici-options";

// {"x-aici-options": {"objects": "open"}} beside the keywords of the schema: as the argument of the controller json_schema.
bool read_options(const json::Value& root, schema::Options& options, schema::Evaluator& evaluator) {
  const json::Value* given = root.find(OPTIONS);
  if (!given) return true;
  bool good = given->is(json::Value::Kind::Object);
  for (size_t i = 0; good && i < given->keys.size(); i++) good = schema::read_option(given->keys[i], given->items[i], options);
  if (!good) evaluator.refuse(root, OPTIONS, schema::OPTIONS_HELP);
  return good;
}

}  // namespace

regex::ExprId json_expr(std::string_view schema, regex::Exprs& exprs, schema::Report& report) {
  json::Value root;
  if (std::optional<json::SyntaxProblem> bad = json::parse(schema, root)) {
    Text message("not JSON: ");
    report.problems.push_back({Text(), Text(), message << bad->message});
    return regex::NOTHING;
  }
  schema::Options options;
  options.space = schema::Space::Spaced;
  options.read_grammar = read_string_grammar;
  schema::StringLanguages strings(exprs);
  schema::Evaluator evaluator(root, exprs, strings, options, report);
  if (!read_options(root, options, evaluator)) return regex::NOTHING;
  regex::ExprId texts = schema::Lowering(evaluator, exprs, strings, options).texts(evaluator.conj_of(root));
  if (!report.problems.empty()) return regex::NOTHING;
  texts = exprs.settle(texts);
  if (exprs.error()) {
    evaluator.refuse(root, "", exprs.error());
  } else if (texts == regex::NOTHING) {
    evaluator.refuse(root, "", "no value satisfies this schema");
  }
  return report.problems.empty() ? texts : regex::NOTHING;
}

}  // namespace aici::grammar
