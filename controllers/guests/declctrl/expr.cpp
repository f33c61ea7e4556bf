// Evaluate expressions when their step is reached.
#include "aici/host.hpp"
#include "aici/variables.hpp"
#include "ast.hpp"

namespace declctrl {

std::vector<Text> split_list(std::string_view list) {
  std::vector<Text> parts;
  if (list.empty()) return parts;
  for (;;) {
    size_t end = list.find(LIST_SEPARATOR);
    parts.emplace_back(list.substr(0, end));
    if (end == std::string_view::npos) return parts;
    list.remove_prefix(end + LIST_SEPARATOR.size());
  }
}

Text value_of(const Expr& expr, std::string_view current) {
  switch (expr.kind) {
    case Expr::Kind::String:
      return expr.text;
    case Expr::Kind::Current:
      return Text(current);
    case Expr::Kind::Var:
      return aici::get_variable(expr.text).value_or(Text());
    case Expr::Kind::Concat: {
      Text all;
      bool is_first = true;
      for (const Expr& part : expr.parts) {
        if (expr.is_list && !is_first) all << LIST_SEPARATOR;
        is_first = false;
        all << value_of(part, current);
      }
      return all;
    }
    case Expr::Kind::IfEq: {
      bool is_equal = value_of(expr.parts[0], current).view() == value_of(expr.parts[1], current).view();
      return value_of(expr.parts[is_equal ? 2 : 3], current);
    }
    case Expr::Kind::Extract: {
      Text from = value_of(expr.parts[0], current);
      Text found;
      size_t at = 0;
      for (bool is_first = true; std::optional<Match> match = expr.rx->find(from, at); is_first = false) {
        if (expr.is_list && !is_first) found << LIST_SEPARATOR;
        found << match->expand(from, expr.text);
        if (!expr.is_list) break;
        at = match->next();
      }
      return found;
    }
  }
}

bool is_constant(const Expr& expr) {
  if (expr.kind == Expr::Kind::Var) return false;
  for (const Expr& part : expr.parts)
    if (!is_constant(part)) return false;
  return true;
}

aici::script::MadeConstraint inner_constraint(const std::vector<InnerRule>& rules, const aici::TokTrie& trie) {
  std::vector<aici::script::Inner> known;
  for (const InnerRule& rule : rules) known.push_back({rule.after, split_list(value_of(rule.options, {}))});
  return aici::script::inner_constraint(trie, known);
}

}  // namespace declctrl
