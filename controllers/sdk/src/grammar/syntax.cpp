// The structure of a .y file: declarations, rules, alternatives.
#include "syntax.hpp"

#include "aici/grammar/reader.hpp"
#include "scanner.hpp"

namespace aici::grammar {
namespace {

using Kind = Token::Kind;

class SyntaxParser {
 public:
  SyntaxParser(std::string_view text, std::vector<Problem>& problems) : scanner_(text, problems), problems_(problems) {
    take(), take();
  }

  WrittenGrammar parse() {
    declarations();
    while (!at(Kind::End) && !at(Kind::Separator)) rule();
    if (out_.rules.empty() && !has_errors(problems_)) error("the grammar has no rules");
    return static_cast<WrittenGrammar&&>(out_);
  }

 private:
  bool at(Kind kind) const { return token_.kind == kind; }
  bool starts_rule() const { return at(Kind::Name) && ahead_.kind == Kind::Colon; }
  Token take() {
    Token token = token_;
    token_ = ahead_;
    // The text after the second %% is not read, not even cut into words.
    if (ahead_.kind == Kind::Separator) num_separators_++;
    ahead_ = num_separators_ < 2 ? scanner_.next() : Token{};
    return token;
  }
  void error(std::string_view message) { add_error(problems_, token_.place, message); }
  Word word() {
    Token token = take();
    return {token.text, token.kind != Kind::Name, token.place, token.kind == Kind::Json};
  }
  std::vector<Word> words() {
    std::vector<Word> list;
    while ((at(Kind::Name) && !starts_rule()) || at(Kind::Quoted) || at(Kind::Number)) {
      if (at(Kind::Number)) take();  // the number of a token, for programs
      else list.push_back(word());
    }
    return list;
  }

  void declarations() {
    while (!at(Kind::Separator)) {
      if (at(Kind::End)) return error("%% is missing: it stands between the declarations and the rules");
      if (starts_rule()) return error("%% is missing before the first rule");
      if (at(Kind::Directive)) {
        directive(take());
      } else {
        error("expected a directive such as %start, or %% before the first rule");
        while (!at(Kind::Directive) && !at(Kind::Separator) && !at(Kind::End) && !starts_rule()) take();
      }
    }
    take();
  }

  void directive(const Token& name) {
    if (name.text == "%expect") return expect(name);
    std::vector<Word> list = words();
    if (name.text == "%start") {
      if (list.size() != 1 || list[0].quoted) return add_error(problems_, name.place, "%start names one rule");
      if (out_.start) return add_error(problems_, name.place, "%start stands here a second time");
      out_.start = list[0];
    } else if (name.text == "%option") {
      if (list.empty()) add_error(problems_, name.place, "%option names an option: contextual, caseless, ambiguous, scannerless or final_newline");
      for (const Word& option : list) {
        if (option.text == "contextual" && !option.quoted) {
          out_.contextual = true;
        } else if (option.text == "caseless" && !option.quoted) {
          out_.caseless = true;
        } else if (option.text == "ambiguous" && !option.quoted) {
          out_.ambiguous = true;
        } else if (option.text == "scannerless" && !option.quoted) {
          out_.scannerless = true;
        } else if (option.text == "final_newline" && !option.quoted) {
          out_.final_newline = true;
        } else {
          Text message("unknown option ");
          add_error(problems_, option.place, message << option.text << ": there are contextual, caseless, ambiguous, scannerless and final_newline");
        }
      }
    } else if (name.text == "%glr-parser" || name.text == "%glr_parser") {
      out_.general = true;
    } else if (list.empty() && is_known(name.text)) {
      Text message(name.text);
      add_error(problems_, name.place, message << " names at least one terminal");
    } else if (name.text == "%token") {
      tokens(list);
    } else if (name.text == "%left") {
      out_.levels.push_back({Assoc::Left, list});
    } else if (name.text == "%right") {
      out_.levels.push_back({Assoc::Right, list});
    } else if (name.text == "%nonassoc") {
      out_.levels.push_back({Assoc::NonAssoc, list});
    } else if (name.text == "%precedence") {
      out_.levels.push_back({Assoc::None, list});
    } else if (name.text == "%indentation") {
      if (list.size() != 3) return add_error(problems_, name.place, "%indentation names three terminals: the newline, the indentation and its end");
      out_.indentation = list;
    } else if (name.text == "%brackets") {
      if (list.size() % 2) return add_error(problems_, name.place, "%brackets names pairs: an opening text, then the closing text");
      out_.brackets.insert(out_.brackets.end(), list.begin(), list.end());
    } else if (name.text == "%prefer") {
      out_.preferences.push_back(list);
    } else {
      unknown(name);
    }
  }

  // %token NAME "text" gives the name a text.
  void tokens(const std::vector<Word>& list) {
    for (size_t i = 0; i < list.size(); i++) {
      bool named = i > 0 && list[i].quoted && !list[i - 1].quoted;
      if (named) out_.aliases.push_back({list[i - 1], list[i]});
      else out_.tokens.push_back(list[i]);
    }
  }

  void expect(const Token& name) {
    if (!at(Kind::Number) || token_.text.size() > 6) return add_error(problems_, name.place, "%expect names a number of conflicts");
    out_.expected_conflicts = 0;
    for (char digit : take().text) out_.expected_conflicts = out_.expected_conflicts * 10 + static_cast<uint32_t>(digit - '0');
  }

  static bool is_known(std::string_view name) {
    for (std::string_view known : {"%token", "%left", "%right", "%nonassoc", "%precedence", "%prefer", "%indentation", "%brackets"})
      if (name == known) return true;
    return false;
  }

  void unknown(const Token& name) {
    Text message("unknown directive ");
    message << name.text;
    if (name.text == "%prec" || name.text == "%empty") {
      message.clear();
      message << name.text << " stands inside an alternative";
    } else if (name.text == "%skip") {
      message << ": what is to be skipped is listed in the rule SKIP";
    } else if (std::string_view near = nearest(
                   name.text, {"%start", "%token", "%left", "%right", "%nonassoc", "%precedence", "%prefer", "%option", "%expect", "%prec", "%empty", "%indentation", "%brackets"});
               !near.empty()) {
      message << ": did you mean " << near << '?';
    } else {
      message << ": there are %start, %token, %left, %right, %nonassoc, %precedence, %prefer, %expect, %glr-parser, %indentation, %brackets and %option";
    }
    add_error(problems_, name.place, message);
  }

  void rule() {
    if (!starts_rule()) {
      if (at(Kind::Directive)) {
        Text message(token_.text);
        error((message << " does not start a rule: declarations stand before %%").view());
      } else if (at(Kind::Name)) {
        Text message("expected ':' after ");
        error((message << token_.text).view());
      } else {
        error("expected a rule: name : alternatives ;");
      }
      return recover();
    }
    WrittenRule rule{word(), {}};
    take();  // the colon
    for (;;) {
      rule.alternatives.push_back(alternative());
      if (!at(Kind::Bar)) break;
      take();
    }
    if (at(Kind::Semicolon)) {
      while (at(Kind::Semicolon)) take();
    } else {
      bool ends = starts_rule() || at(Kind::Separator) || at(Kind::End);
      Text message("';' is missing at the end of the rule ");
      problems_.push_back({ends ? Severity::Warning : Severity::Error, token_.place, message << rule.name.text});
      if (!ends) recover();
    }
    out_.rules.push_back(static_cast<WrittenRule&&>(rule));
  }

  // To the next rule.
  void recover() {
    while (!at(Kind::End) && !at(Kind::Separator)) {
      if (take().kind == Kind::Semicolon || starts_rule()) return;
    }
  }

  WrittenAlternative alternative() {
    WrittenAlternative out;
    out.place = token_.place;
    bool empty = false;
    for (;;) {
      if ((at(Kind::Name) && !starts_rule()) || at(Kind::Quoted) || at(Kind::Json)) {
        if (out.prec) error("%prec stands at the end of an alternative");
        if (empty) error("%empty stands alone in its alternative");
        if (out.symbols.size() == MAX_BODY) error("this alternative has more than 1024 symbols: split it");
        out.symbols.push_back(word());
      } else if (at(Kind::Directive) && token_.text == "%empty") {
        if (!out.symbols.empty() || empty) error("%empty stands alone in its alternative");
        empty = true;
        take();
      } else if (at(Kind::Directive) && token_.text == "%prec") {
        if (out.prec) error("an alternative has one %prec");
        take();
        if (at(Kind::Quoted) || (at(Kind::Name) && !starts_rule())) {
          out.prec = word();
        } else {
          error("%prec names a terminal");
        }
      } else if (at(Kind::Directive) && is_hint(token_.text)) {
        take();
        if (at(Kind::Number)) take();
      } else if (at(Kind::Directive)) {
        unknown(take());
      } else {
        return out;
      }
    }
  }

  // What Bison's GLR parsers do with several results of one text; %expect of one rule.
  static bool is_hint(std::string_view name) {
    return name == "%dprec" || name == "%merge" || name == "%expect" || name == "%expect-rr";
  }

  Scanner scanner_;
  std::vector<Problem>& problems_;
  Token token_{}, ahead_{};
  int num_separators_ = 0;
  WrittenGrammar out_;
};

}  // namespace

WrittenGrammar parse_syntax(std::string_view text, std::vector<Problem>& problems) {
  return SyntaxParser(text, problems).parse();
}

}  // namespace aici::grammar
