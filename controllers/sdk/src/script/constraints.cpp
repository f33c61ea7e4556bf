#include "aici/script/constraints.hpp"

#include "aici/choices.hpp"
#include "aici/grammar/parser.hpp"
#include "aici/grammar/recognizer.hpp"
#include "aici/json.hpp"
#include "aici/json_schema.hpp"
#include "aici/regex.hpp"
#include "aici/substring.hpp"

namespace aici::script {

namespace {

template <FunctionalRecognizer F>
MadeConstraint constraint_of(const TokTrie& trie, F inner) {
  using Stack = StackRecognizer<F>;
  return {.constraint = std::make_unique<RecognizerConstraint<Stack>>(trie, Stack(static_cast<F&&>(inner)))};
}

}  // namespace

MadeConstraint regex_constraint(const TokTrie& trie, std::string_view pattern) {
  std::optional<regex::Problem> problem;
  std::optional<regex::Dfa> dfa = regex::compile(pattern, problem);
  if (!dfa) return {.problem = describe(*problem, pattern)};
  return constraint_of(trie, RegexRecognizer(static_cast<regex::Dfa&&>(*dfa)));
}

MadeConstraint grammar_constraint(const TokTrie& trie, std::string_view text) {
  Text why;
  std::optional<grammar::Parser> parser = grammar::read_parser(text, why);
  if (!parser) return {.problem = Text("grammar error: ") << why};
  if (parser->automaton) return constraint_of(trie, RegexRecognizer(static_cast<regex::Dfa&&>(*parser->automaton)));
  grammar::GrammarRecognizer recognizer(parser->grammar, static_cast<grammar::LrTable&&>(parser->table));
  using Grammar = RecognizerConstraint<grammar::GrammarRecognizer>;
  return {.constraint = std::make_unique<Grammar>(trie, static_cast<grammar::GrammarRecognizer&&>(recognizer))};
}

MadeConstraint json_schema_constraint(const TokTrie& trie, std::string_view schema) {
  json::Value value;
  if (std::optional<json::SyntaxProblem> problem = json::parse(schema, value)) {
    Text why("the schema is not JSON: line ");
    return {.problem = why << problem->line << ", column " << problem->column << ": " << problem->message};
  }
  return json_schema_constraint(trie, value);
}

MadeConstraint json_schema_constraint(const TokTrie& trie, const json::Value& schema) {
  schema::Report report;
  std::optional<RegexRecognizer> recognizer = compile_json_schema(schema, {}, report);
  if (!recognizer) return {.problem = schema::describe(report.problems, "json schema error")};
  return constraint_of(trie, static_cast<RegexRecognizer&&>(*recognizer));
}

MadeConstraint choices_constraint(const TokTrie& trie, std::span<const Text> choices) {
  Text json("[");
  for (const Text& choice : choices) json << (json.size() > 1 ? "," : "") << json::quoted(choice);
  json << ']';
  std::optional<json::Problem> problem;
  std::optional<ChoiceList> list = read_choices(json, problem);
  if (!list) return {.problem = Text(problem->message)};
  return constraint_of(trie, ChoicesRecognizer(static_cast<ChoiceList&&>(*list)));
}

MadeConstraint substring_constraint(const TokTrie& trie, std::string_view text, std::string_view end) {
  Text json("{\"text\":");
  json << json::quoted(text) << ",\"end\":" << json::quoted(end) << '}';
  std::optional<json::Problem> problem;
  std::optional<SubstringArgument> argument = read_substring(json, problem);
  if (!argument) return {.problem = Text(problem->message)};
  return constraint_of(trie, SubstringRecognizer(static_cast<SubstringArgument&&>(*argument)));
}

namespace {

regex::ExprId literal(regex::Exprs& exprs, std::string_view text) {
  regex::ExprId e = regex::EMPTY;
  for (size_t i = text.size(); i-- > 0;) e = exprs.concat(exprs.bytes(regex::ByteSet::of(static_cast<uint8_t>(text[i]))), e);
  return e;
}

}  // namespace

MadeConstraint inner_constraint(const TokTrie& trie, std::span<const Inner> rules) {
  regex::Exprs exprs;
  std::optional<regex::Problem> problem;
  std::vector<regex::ExprId> all{regex::parse("(.|\\n)+", exprs, problem)};
  for (const Inner& rule : rules) {
    if (rule.options.empty()) return {.problem = Text("there is no option after ") << json::quoted(rule.after)};
    std::vector<regex::ExprId> options;
    for (const Text& option : rule.options) options.push_back(literal(exprs, option));
    // No text that has `after` before it and begins with none of the options.
    regex::ExprId wrong = exprs.complement(exprs.concat(exprs.alt(static_cast<std::vector<regex::ExprId>&&>(options)), exprs.all()));
    all.push_back(exprs.complement(exprs.concat(exprs.all(), exprs.concat(literal(exprs, rule.after), wrong))));
  }
  regex::ExprId text = exprs.both(static_cast<std::vector<regex::ExprId>&&>(all));
  if (exprs.error()) return {.problem = Text(exprs.error())};
  if (!regex::Dfa::fits(exprs, text)) return {.problem = Text("these options are too many: the automaton would outgrow its bounds")};
  return constraint_of(trie, RegexRecognizer(regex::Dfa(static_cast<regex::Exprs&&>(exprs), text)));
}

}  // namespace aici::script
