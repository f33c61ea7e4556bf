// From JSON to steps. All errors are found here, before the first token.
#include <algorithm>
#include <initializer_list>

#include "aici/json.hpp"
#include "aici/json_value.hpp"
#include "aici/script/constraints.hpp"
#include "ast.hpp"

namespace declctrl {
namespace {

using aici::json::Value;
using Names = std::initializer_list<std::string_view>;
namespace script = aici::script;

constexpr uint32_t MAX_NUMBER = 1'000'000'000;

class Reader {
 public:
  Reader(const Value& root, const aici::TokTrie& trie) : root_(root), trie_(trie), has_mask_tags_(has_mask_tags(root)) {}

  Text problems;

  std::vector<Step> document() {
    if (!check_keys(root_, {"steps", "$schema"}, {"steps"})) return {};
    std::vector<Text> labels{Text(PROMPT)};
    return steps(*root_.find("steps"), labels);
  }

 private:
  void refuse(const Value& place, std::string_view why) {
    problems << (problems.empty() ? "#" : "\n#") << aici::json::pointer_to(root_, place) << ": " << why;
  }

  // Whether `value` is an object with these keys, some of them required. A key with the value null counts as absent.
  bool check_keys(const Value& value, Names known, Names needed) {
    if (!value.is(Value::Kind::Object)) return refuse(value, "expected an object"), false;
    bool is_good = true;
    for (size_t i = 0; i < value.keys.size(); i++) {
      std::string_view key = value.keys[i];
      const Value& item = value.items[i];
      if (std::find(known.begin(), known.end(), key) != known.end() || item.is(Value::Kind::Null)) continue;
      bool is_about_attention = key == "mask_tags" || key == "tag";
      if (is_about_attention && item.is(Value::Kind::Array) && item.items.empty()) continue;
      if (key == "tag" && item.is(Value::Kind::String) && !has_mask_tags_) continue;
      is_good = false;
      if (is_about_attention) {
        refuse(item, "masks of attention are not honoured: leave this out");
      } else {
        refuse(item, with_list(Text("this key is not known here"), known));
      }
    }
    for (std::string_view key : needed)
      if (!get(value, key)) refuse(value, Text("this needs \"") << key << '"'), is_good = false;
    return is_good;
  }

  // Whether a step names tags to mask. Without one, the tags of the other steps are names that nothing refers to.
  static bool has_mask_tags(const Value& value) {
    for (size_t i = 0; i < value.items.size(); i++) {
      const Value& item = value.items[i];
      bool is_mask = i < value.keys.size() && value.keys[i].view() == "mask_tags";
      if ((is_mask && !item.items.empty()) || has_mask_tags(item)) return true;
    }
    return false;
  }

  static Text with_list(Text why, Names known) {
    if (known.size() > 0) why << "; known:";
    for (std::string_view name : known) why << ' ' << name;
    return why;
  }

  // The value of a key that is present and not null.
  static const Value* get(const Value& object, std::string_view key) {
    const Value* value = object.find(key);
    return value && !value->is(Value::Kind::Null) ? value : nullptr;
  }

  // The single key of an object, and its value.
  const Value* tagged(const Value& value, Names tags, std::string_view what, std::string_view& tag) {
    bool is_one = value.is(Value::Kind::Object) && value.keys.size() == 1;
    auto found = is_one ? std::find(tags.begin(), tags.end(), value.keys[0].view()) : tags.end();
    if (found == tags.end()) {
      Text why("expected ");
      refuse(value, with_list(why << what << ", an object with one key", tags));
      return nullptr;
    }
    tag = *found;
    return &value.items[0];
  }

  Text string(const Value& value) {
    if (!value.is(Value::Kind::String)) refuse(value, "expected a string");
    return value.text;
  }

  std::vector<Text> strings(const Value& value) {
    std::vector<Text> texts;
    if (!value.is(Value::Kind::Array) || value.items.empty()) return refuse(value, "expected an array of strings, one at least"), texts;
    for (const Value& item : value.items) texts.push_back(string(item));
    return texts;
  }

  uint32_t number(const Value& value) {
    uint64_t number = 0;
    bool is_whole = value.is(Value::Kind::Number);
    for (char c : value.text.view()) {
      is_whole = is_whole && c >= '0' && c <= '9' && number <= MAX_NUMBER;
      number = is_whole ? number * 10 + static_cast<uint64_t>(c - '0') : 0;
    }
    if (!is_whole || number == 0 || number > MAX_NUMBER) refuse(value, "expected a whole number from 1 to 1000000000");
    return static_cast<uint32_t>(number);
  }

  bool boolean(const Value& object, std::string_view key) {
    const Value* value = get(object, key);
    if (value && !value->is_boolean()) refuse(*value, "expected true or false");
    return value && value->is(Value::Kind::True);
  }

  std::vector<Step> steps(const Value& value, std::vector<Text>& labels) {
    std::vector<Step> all;
    if (!value.is(Value::Kind::Array)) refuse(value, "expected an array of steps");
    if (value.is(Value::Kind::Array))
      for (const Value& item : value.items) all.push_back(step(item, labels));
    return all;
  }

  Step step(const Value& value, std::vector<Text>& labels) {
    Step step;
    std::string_view tag;
    const Value* inner = tagged(value, {"Fixed", "Choose", "Gen", "Fork", "Wait", "Stop"}, "a step", tag);
    if (!inner) return step;
    if (tag == "Fixed") {
      fixed(*inner, step, labels);
    } else if (tag == "Choose") {
      choose(*inner, step);
    } else if (tag == "Gen") {
      gen(*inner, step);
    } else if (tag == "Fork") {
      fork(*inner, step, labels);
    } else if (tag == "Wait") {
      step.kind = Step::Kind::Wait;
      if (check_keys(*inner, {"vars"}, {"vars"})) step.variables = strings(*inner->find("vars"));
    } else {
      check_keys(*inner, {}, {});
    }
    if (step.label) labels.push_back(*step.label);
    return step;
  }

  void fixed(const Value& value, Step& step, std::vector<Text>& labels) {
    step.kind = Step::Kind::Fixed;
    if (!check_keys(value, {"text", "following", "stmts", "label"}, {"text"})) return;
    step.expr = expr(*value.find("text"), false);
    if (const Value* following = get(value, "following")) {
      step.following = string(*following);
      auto label = std::find_if(labels.begin(), labels.end(), [&](const Text& name) { return name.view() == step.following->view(); });
      if (label == labels.end()) refuse(*following, "no step before this has this label, or it was taken back");
      else labels.erase(step.following->view() == PROMPT ? label + 1 : label, labels.end());
    }
    attributes(value, step);
  }

  void choose(const Value& value, Step& step) {
    step.kind = Step::Kind::Choose;
    if (!check_keys(value, {"options", "stmts", "label"}, {"options"})) return;
    const Value& options = *value.find("options");
    step.pointer = Text("#") << aici::json::pointer_to(root_, options);
    size_t before = problems.size();
    step.expr = expr(options, false);
    step.gen.max_tokens = UINT32_MAX;
    if (problems.size() == before && is_constant(step.expr))
      take(options, step, script::choices_constraint(trie_, split_list(value_of(step.expr, {}))));
    attributes(value, step);
  }

  void gen(const Value& value, Step& step) {
    step.kind = Step::Kind::Gen;
    if (!check_keys(value,
                    {"rx", "yacc", "json_schema", "choices", "substring", "substring_end", "stop_at", "max_tokens", "max_words",
                     "max_bytes", "inner", "stmts", "label"},
                    {}))
      return;
    if (const Value* inner = get(value, "inner")) read_inner(*inner, step);
    constrain(value, step);
    if (const Value* stop_at = get(value, "stop_at")) {
      step.gen.stop_at = string(*stop_at);
      if (step.gen.stop_at.empty()) refuse(*stop_at, "an empty text stops nothing");
    }
    step.gen.max_tokens = UINT32_MAX;
    if (const Value* most = get(value, "max_tokens")) step.gen.max_tokens = number(*most);
    if (const Value* most = get(value, "max_words")) step.gen.max_words = number(*most);
    if (const Value* most = get(value, "max_bytes")) step.gen.max_bytes = number(*most);
    attributes(value, step);
  }

  void constrain(const Value& value, Step& step) {
    std::string_view first;
    for (std::string_view key : {"rx", "yacc", "json_schema", "choices", "substring"}) {
      const Value* argument = get(value, key);
      if (!argument) continue;
      if (!first.empty()) {
        refuse(*argument, Text(key) << " and " << first << " exclude each other");
        return;
      }
      first = key;
      size_t before = problems.size();
      if (key == "json_schema") {
        take(*argument, step, script::json_schema_constraint(trie_, *argument));
      } else if (key == "choices") {
        std::vector<Text> choices = strings(*argument);
        if (problems.size() == before) take(*argument, step, script::choices_constraint(trie_, choices));
      } else if (Text text = string(*argument); problems.size() == before) {
        const Value* end = get(value, "substring_end");
        if (key == "rx") take(*argument, step, script::regex_constraint(trie_, text));
        if (key == "yacc") take(*argument, step, script::grammar_constraint(trie_, text));
        if (key == "substring") take(*argument, step, script::substring_constraint(trie_, text, end ? string(*end) : Text("\"")));
      }
    }
    if (const Value* end = get(value, "substring_end"); end && first != "substring") refuse(*end, "substring_end belongs to substring");
    const Value* inner = get(value, "inner");
    if (!first.empty() && !step.inner.empty()) refuse(*inner, Text("inner and ") << first << " exclude each other");
    bool is_known = std::all_of(step.inner.begin(), step.inner.end(), [](const InnerRule& rule) { return is_constant(rule.options); });
    if (first.empty() && is_known) take(inner ? *inner : value, step, inner_constraint(step.inner, trie_));
  }

  void read_inner(const Value& value, Step& step) {
    if (!value.is(Value::Kind::Array)) return refuse(value, "expected an array of objects");
    step.pointer = Text("#") << aici::json::pointer_to(root_, value);
    for (const Value& item : value.items) {
      if (!check_keys(item, {"after", "options"}, {"after", "options"})) continue;
      const Value& after = *item.find("after");
      step.inner.push_back({string(after), expr(*item.find("options"), false)});
      if (step.inner.back().after.empty()) refuse(after, "an empty text is everywhere");
    }
  }

  void take(const Value& place, Step& step, script::MadeConstraint made) {
    if (!made.constraint) return refuse(place, made.problem);
    step.gen.constraint = static_cast<std::unique_ptr<aici::Constraint>&&>(made.constraint);
  }

  void fork(const Value& value, Step& step, std::vector<Text>& labels) {
    step.kind = Step::Kind::Fork;
    if (!check_keys(value, {"branches"}, {"branches"})) return;
    const Value& branches = *value.find("branches");
    if (!branches.is(Value::Kind::Array) || branches.items.size() < 2) return refuse(branches, "expected an array of two branches at least");
    std::vector<Text> after = labels;
    for (const Value& branch : branches.items) {
      std::vector<Text> known = labels;
      step.branches.push_back(steps(branch, known));
      if (step.branches.back().empty()) refuse(branch, "expected an array of steps, one at least");
      // The result is a prefix of the labels known before.
      size_t kept = 0;
      while (kept < after.size() && kept < known.size() && known[kept].view() == after[kept].view()) kept++;
      after.erase(after.begin() + static_cast<ptrdiff_t>(kept), after.end());
    }
    labels = after;
  }

  void attributes(const Value& value, Step& step) {
    if (const Value* label = get(value, "label")) {
      step.label = string(*label);
      if (step.label->view() == PROMPT) refuse(*label, "this label is the prompt's");
    }
    const Value* stmts = get(value, "stmts");
    if (!stmts) return;
    if (!stmts->is(Value::Kind::Array)) return refuse(*stmts, "expected an array of statements");
    for (const Value& stmt : stmts->items) {
      std::string_view tag;
      const Value* set = tagged(stmt, {"Set"}, "a statement", tag);
      if (!set || !check_keys(*set, {"var", "expr"}, {"var", "expr"})) continue;
      step.stmts.push_back({string(*set->find("var")), expr(*set->find("expr"), true)});
    }
  }

  Expr expr(const Value& value, bool is_after) {
    Expr expr;
    std::string_view tag;
    const Value* inner = tagged(value, {"String", "Var", "Current", "Concat", "IfEq", "Extract"}, "an expression", tag);
    if (!inner) return expr;
    if (tag == "String") {
      if (check_keys(*inner, {"str"}, {"str"})) expr.text = string(*inner->find("str"));
    } else if (tag == "Var") {
      expr.kind = Expr::Kind::Var;
      if (check_keys(*inner, {"var"}, {"var"})) expr.text = string(*inner->find("var"));
    } else if (tag == "Current") {
      expr.kind = Expr::Kind::Current;
      check_keys(*inner, {}, {});
      if (!is_after) refuse(value, "Current is the text of a step, known to its stmts only");
    } else if (tag == "Concat") {
      expr.kind = Expr::Kind::Concat;
      if (!check_keys(*inner, {"parts", "list"}, {"parts"})) return expr;
      const Value& parts = *inner->find("parts");
      if (!parts.is(Value::Kind::Array)) refuse(parts, "expected an array of expressions");
      for (const Value& part : parts.items) expr.parts.push_back(this->expr(part, is_after));
      expr.is_list = boolean(*inner, "list");
    } else if (tag == "IfEq") {
      expr.kind = Expr::Kind::IfEq;
      Names keys{"a", "b", "eq", "neq"};
      if (!check_keys(*inner, keys, keys)) return expr;
      for (std::string_view key : keys) expr.parts.push_back(this->expr(*inner->find(key), is_after));
    } else {
      extract(*inner, is_after, expr);
    }
    return expr;
  }

  void extract(const Value& value, bool is_after, Expr& expr) {
    expr.kind = Expr::Kind::Extract;
    if (!check_keys(value, {"from", "rx", "template", "list"}, {"from", "rx"})) return;
    expr.parts.push_back(this->expr(*value.find("from"), is_after));
    expr.is_list = boolean(value, "list");
    const Value& rx = *value.find("rx");
    Text problem;
    expr.rx = Pattern::parse(string(rx), problem);
    if (!expr.rx) return refuse(rx, problem);
    const Value* form = get(value, "template");
    expr.text = form ? string(*form) : Text("$1");
    problem = expr.rx->check(expr.text);
    if (!problem.empty()) refuse(form ? *form : rx, problem);
  }

  const Value& root_;
  const aici::TokTrie& trie_;
  bool has_mask_tags_;
};

}  // namespace

Document read_document(std::string_view json, const aici::TokTrie& trie) {
  Document document;
  Value root;
  if (std::optional<aici::json::SyntaxProblem> problem = aici::json::parse(json, root)) {
    document.problems << "the steps are not JSON: line " << problem->line << ", column " << problem->column << ": " << problem->message;
    return document;
  }
  Reader reader(root, trie);
  document.steps = reader.document();
  document.problems = reader.problems;
  return document;
}

}  // namespace declctrl
