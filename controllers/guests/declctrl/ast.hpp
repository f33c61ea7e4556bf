// A program as its author wrote it: steps, one after another.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "aici/script/constraints.hpp"
#include "aici/script/steps.hpp"
#include "aici/text.hpp"
#include "extract.hpp"

namespace declctrl {

using aici::Text;

// A text that is known when the step is reached.
struct Expr {
  enum class Kind : uint8_t { String, Var, Current, Concat, IfEq, Extract };
  Kind kind = Kind::String;
  Text text{};                  // of String itself, of Var the name, of Extract the template
  std::vector<Expr> parts{};    // of Concat all, of IfEq a, b, eq and neq, of Extract where to look
  bool is_list = false;         // Concat, Extract
  std::optional<Pattern> rx{};  // Extract
};

struct Set {
  Text variable;
  Expr value;
};

// Where a text has `after` in it, one of the options comes next.
struct InnerRule {
  Text after;
  Expr options;
};

struct Step {
  enum class Kind : uint8_t { Fixed, Choose, Gen, Fork, Wait, Stop };
  Kind kind = Kind::Stop;
  Text pointer{};                                // of Choose its options, of Gen its inner: where that stands
  Expr expr{};                                   // of Fixed its text, of Choose its options
  aici::script::Gen gen{};                       // of Gen and Choose; without a constraint if that depends on variables
  std::vector<InnerRule> inner{};                // Gen
  std::optional<Text> following{};               // Fixed
  std::vector<std::vector<Step>> branches{};     // Fork
  std::vector<Text> variables{};                 // Wait
  std::vector<Set> stmts{};
  std::optional<Text> label{};
};

// The label of the prompt.
inline constexpr std::string_view PROMPT = "prompt";

// The steps of a JSON document, or what is wrong with it, a line each: "#/steps/2/Gen/rx: ...".
struct Document {
  std::vector<Step> steps{};
  Text problems{};
};
Document read_document(std::string_view json, const aici::TokTrie& trie);

// Parts of a list are one text, with this between them.
inline constexpr std::string_view LIST_SEPARATOR = "\xEF\xBC\x8C";
std::vector<Text> split_list(std::string_view list);

// `current` is what the step has made.
Text value_of(const Expr& expr, std::string_view current);
// Whether the value depends on no variable.
bool is_constant(const Expr& expr);
aici::script::MadeConstraint inner_constraint(const std::vector<InnerRule>& rules, const aici::TokTrie& trie);

}  // namespace declctrl
