#include "json_terminal.hpp"

#include "aici/json_value.hpp"
#include "aici/schema/lowering.hpp"

namespace aici::grammar {
namespace {

constexpr size_t MAX_WEIGHT = 30000;  // the lexer needs room for derivatives

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
  schema::StringLanguages strings(exprs);
  schema::Evaluator evaluator(root, exprs, strings, options, report);
  size_t before = exprs.weight();
  regex::ExprId texts = schema::Lowering(evaluator, exprs, strings, options).texts(evaluator.conj_of(root));
  if (!report.problems.empty()) return regex::NOTHING;
  texts = exprs.settle(texts);
  if (exprs.error()) {
    evaluator.refuse(root, "", exprs.error());
  } else if (texts == regex::NOTHING) {
    evaluator.refuse(root, "", "no value satisfies this schema");
  } else if (exprs.weight() - before > MAX_WEIGHT) {
    evaluator.refuse(root, "", "the schema is too large for a terminal");
  }
  return report.problems.empty() ? texts : regex::NOTHING;
}

}  // namespace aici::grammar
