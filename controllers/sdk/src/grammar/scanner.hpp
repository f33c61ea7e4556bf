// Cut a .y file into words.
#pragma once
#include <string_view>
#include <vector>

#include "aici/grammar/problem.hpp"

namespace aici::grammar {

struct Token {
  enum class Kind : uint8_t { End, Name, Quoted, Json, Number, Directive, Separator, Colon, Bar, Semicolon };
  Kind kind = Kind::End;
  std::string_view text{};  // of a name, of a directive including its %, of a quoted text without quotes, of %json the schema
  Place place{};
};

// Reports text that is not a word, and continues behind it. Code in a host language is skipped with a warning: actions
// {...}, %{...%}, and declarations such as %union that matter only to the generated program.
class Scanner {
 public:
  Scanner(std::string_view text, std::vector<Problem>& problems) : text_(text), problems_(problems) {}
  Token next();

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool done() const { return at_ == text_.size(); }
  void bump();
  void skip_blanks();
  void skip_block_comment();
  void skip_code();
  void skip_prologue();
  void skip_string(char quote);
  void skip_arguments();
  bool skip_tag(char open, char close);
  void warn_once(std::string_view what, Place place, std::string_view message);
  Token quoted();
  Token directive();
  Token json(Place start);
  Token name(Token::Kind kind, size_t start, Place place);
  Place place() const { return {line_, column_}; }

  std::string_view text_;
  std::vector<Problem>& problems_;
  size_t at_ = 0;
  uint32_t line_ = 1, column_ = 1;
  bool in_rules_ = false;  // behind the first %%
  std::vector<Text> warned_;
};

}  // namespace aici::grammar
