// The recursive-descent parser behind regex::parse. After `problem` is set, results mean nothing and callers return.
#pragma once
#include <optional>
#include <vector>

#include "aici/regex/code_points.hpp"
#include "aici/regex/parser.hpp"

namespace aici::regex {

class Parser {
 public:
  Parser(std::vector<uint32_t> text, Exprs& exprs, std::optional<Problem>& problem)
      : text_(static_cast<std::vector<uint32_t>&&>(text)), exprs_(exprs), problem_(problem) {}

  ExprId pattern();

 private:
  static constexpr uint32_t END = UINT32_MAX;
  static constexpr uint32_t MAX_COUNT = 100000;
  static constexpr int MAX_DEPTH = 200;  // of groups: the host's stack for guests is half a MiB

  // Either one code point or, after \d and its like, a set.
  struct Item {
    uint32_t code_point = 0;
    std::optional<CodePoints> set{};
  };

  ExprId alternation();
  ExprId sequence();
  ExprId quantified();
  ExprId atom();
  ExprId group();
  bool counts(uint32_t& min, uint32_t& max);
  bool number(uint32_t& value);

  ExprId char_class();
  Item class_item(size_t start);
  Item escape();
  std::optional<uint32_t> hex(size_t start, int num_digits);
  ExprId any_of(const CodePoints& set) { return (ignore_case_ ? set.either_case() : set).to_expr(exprs_); }

  uint32_t peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : END; }
  bool accept(uint32_t c) { return peek() == c ? (at_++, true) : false; }
  bool accept(std::string_view literal);
  bool done() const { return at_ == text_.size(); }
  // Only the first problem is kept.
  ExprId refuse(size_t position, std::string_view message) {
    if (!problem_) problem_ = Problem{static_cast<uint32_t>(position), Text(message)};
    return NOTHING;
  }

  std::vector<uint32_t> text_;
  size_t at_ = 0;
  Exprs& exprs_;
  std::optional<Problem>& problem_;
  bool ignore_case_ = false;
  int depth_ = 0;
};

}  // namespace aici::regex
