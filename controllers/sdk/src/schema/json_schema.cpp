#include "aici/json_schema.hpp"

#include "aici/schema/lowering.hpp"

namespace aici {

std::optional<RegexRecognizer> compile_json_schema(const json::Value& root, const schema::Options& options, schema::Report& report) {
  regex::Exprs exprs;
  schema::StringLanguages strings(exprs);
  schema::Evaluator evaluator(root, exprs, strings, options, report);
  regex::ExprId texts = schema::Lowering(evaluator, exprs, strings, options).texts(evaluator.conj_of(root));
  if (!report.problems.empty()) return std::nullopt;
  texts = exprs.settle(texts);
  if (exprs.error()) {
    evaluator.refuse(root, "", exprs.error());
  } else if (texts == regex::NOTHING) {
    evaluator.refuse(root, "", "no value satisfies this schema");
  } else if (!regex::Dfa::fits(exprs, texts)) {
    evaluator.refuse(root, "", "the schema is too large: shorten its lists of values, or split it");
  }
  if (!report.problems.empty()) return std::nullopt;
  return RegexRecognizer(regex::Dfa(static_cast<regex::Exprs&&>(exprs), texts));
}

}  // namespace aici
