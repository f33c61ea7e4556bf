// The recursive-descent parser behind regex::parse. Once `problem` is set, results are meaningless and callers return.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "aici/regex/parser.hpp"
#include "anchored.hpp"

namespace aici::regex {

// Letters of Python's `re`. Without any, \d \w \s are ASCII and (?i) knows all of Unicode.
struct Flags {
  bool ascii = false;        // a: (?i) is about ASCII letters only
  bool ignore_case = false;  // i
  bool multi_line = false;   // m
  bool dot_all = false;      // s
  bool unicode = false;      // u: \d \w \s are Unicode's
  bool verbose = false;      // x
  bool operator==(const Flags&) const = default;
};

class Parser {
 public:
  Parser(std::vector<uint32_t> text, Exprs& exprs, std::optional<Problem>& problem, ParseOptions options)
      : text_(static_cast<std::vector<uint32_t>&&>(text)), exprs_(exprs), problem_(problem), options_(options) {}

  ExprId pattern();

 private:
  static constexpr uint32_t END = UINT32_MAX;
  static constexpr uint32_t MAX_COUNT = 100000;
  static constexpr int MAX_DEPTH = 200;  // of groups: the native stack for guests is half a MiB

  // Either one code point or, after \d and similar, a set.
  struct Item {
    uint32_t code_point = 0;
    std::optional<CodePoints> set{};
  };

  // `expr` reads body{min,max}; if `expr` has assertions, `body` is NOTHING.
  struct Quantified {
    Anchored expr;
    ExprId body = NOTHING;
    uint32_t min = 1, max = 1;
    // Ahead, NotAhead: `expr` follows, or does not follow. NotInside: `expr` repeats a character and `inside` does not
    // follow before any of them, as in ((?!inside).)*. Behind, NotBehind: `expr` ends here, or does not. Boundary: \b.
    enum class Look : uint8_t { None, Ahead, NotAhead, NotInside, Behind, NotBehind, Boundary } look = Look::None;
    uint32_t inside = 0;  // its index in `insides_`: a long pattern has many parts, and few of these
    size_t start = 0;  // of an assertion
  };

  struct KnownClass {
    size_t start, end;  // where it was written
    Flags flags;
    ExprId expr;
  };

  // groups.cpp
  Anchored set_operator(size_t start);

  // parser.cpp: alternatives, sequences, quantifiers
  Anchored alternation();
  Anchored sequence(bool leads);
  Quantified quantified();
  bool join(Quantified& last, const Quantified& next);
  Anchored atom();
  std::optional<Anchored> anchor();
  bool counts(uint32_t& min, uint32_t& max);
  bool number(uint32_t& value);

  // look_ahead.cpp
  std::optional<Quantified> look_ahead();
  std::optional<Quantified> look_inside();
  std::optional<End> end_of_pattern() const;
  Anchored at_boundary(const Anchored& before, const Anchored& rest);
  Anchored looking(const Quantified& look, std::span<const Quantified> before, const Anchored& rest);
  Anchored looked_for(size_t start);
  size_t look_behind(std::vector<Quantified>& parts, size_t at, bool leads);
  bool is_no_longer(ExprId e, ExprId other);
  bool is_at_start(std::span<const Quantified> before, size_t start) const;
  bool is_one_character(ExprId e);
  ExprId up_to_end(const Anchored& part) { return part.up_to_end(exprs_, options_.encoding, End::Anywhere).whole(exprs_); }
  ExprId any_text();

  // groups.cpp: groups, flags, comments
  Anchored group();
  Anchored group_body(size_t start, Flags flags);
  void group_name(size_t start);
  void global_flags();
  bool at_flags() const;
  Flags flag_letters(size_t start);
  void skip_ignored();

  // char_class.cpp and escape.cpp: characters
  ExprId char_class();
  std::optional<ExprId> known_class();
  ExprId remember_class(size_t start, ExprId expr);
  Item class_item(size_t start);
  Item escape(bool in_class);
  Item property(size_t start);
  Item octal(size_t start, bool in_class);
  std::optional<uint32_t> code_point(size_t start, uint32_t letter, bool in_class);
  std::optional<uint32_t> hex(size_t num_digits);
  CodePoints named_set(uint32_t letter) const;
  CodePoints either_case(const CodePoints& set) const;
  ExprId any_of(const CodePoints& set) { return set.to_expr(exprs_, options_.encoding); }

  bool ecma() const { return options_.search; }
  uint32_t peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : END; }
  bool accept(uint32_t c) { return peek() == c ? (at_++, true) : false; }
  bool looking_at(std::string_view literal) const;
  bool accept(std::string_view literal) { return looking_at(literal) ? (at_ += literal.size(), true) : false; }
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
  ParseOptions options_;
  Flags flags_;
  int depth_ = 0, look_depth_ = 0;  // of groups, of look-around
  std::optional<size_t> last_anchor_, last_look_;
  std::vector<Anchored> insides_;
  bool leads_ = true;     // nothing comes before the next part in any match
  bool in_both_ = false;  // directly in a (?&...), where & ends a part
  std::vector<std::vector<uint32_t>> names_;  // of groups
  std::vector<KnownClass> known_classes_;
};

inline bool is_digit(uint32_t c) { return c >= '0' && c <= '9'; }
inline bool is_letter(uint32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace aici::regex
