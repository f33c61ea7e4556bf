#include "scanner.hpp"

namespace aici::grammar {
namespace {

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name(char c) { return is_name_start(c) || is_digit(c) || c == '.' || c == '-'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v'; }

// Declarations of yacc and Bison that matter to the generated program only. Old spellings have _ in place of -.
bool is_ignored(std::string_view directive) {
  constexpr std::string_view IGNORED[] = {
      "%union",        "%type",       "%nterm",       "%define",      "%code",           "%destructor",  "%printer",
      "%pure-parser",  "%locations",  "%parse-param", "%lex-param",   "%param",          "%debug",       "%error-verbose",
      "%require",      "%defines",    "%header",      "%output",      "%file-prefix",    "%name-prefix", "%initial-action",
      "%verbose",      "%skeleton",   "%language",    "%token-table", "%no-lines",       "%yacc",        "%expect-rr",
      "%fixed-output-files"};
  for (std::string_view known : IGNORED) {
    bool same = known.size() == directive.size();
    for (size_t i = 0; same && i < known.size(); i++) same = known[i] == (directive[i] == '_' ? '-' : directive[i]);
    if (same) return true;
  }
  return false;
}

}  // namespace

void Scanner::bump() {
  char c = text_[at_++];
  if (c == '\n') {
    line_++, column_ = 1;
  } else if ((static_cast<uint8_t>(peek()) & 0xC0) != 0x80) {  // the next byte starts a code point
    column_++;
  }
}

void Scanner::skip_blanks() {
  while (!done()) {
    if (is_blank(peek())) {
      bump();
    } else if (peek() == '/' && peek(1) == '/') {
      while (!done() && peek() != '\n') bump();
    } else if (peek() == '/' && peek(1) == '*') {
      skip_block_comment();
    } else {
      return;
    }
  }
}

void Scanner::skip_block_comment() {
  Place start = place();
  bump(), bump();
  while (!done() && !(peek() == '*' && peek(1) == '/')) bump();
  if (done()) return add_error(problems_, start, "this comment has no end: */ is missing");
  bump(), bump();
}

void Scanner::warn_once(std::string_view what, Place place, std::string_view message) {
  for (const Text& known : warned_)
    if (known.view() == what) return;
  warned_.emplace_back(what);
  add_warning(problems_, place, message);
}

// A string or a character of the host language; a quote without an end on its line is taken as it is ('a of Rust).
void Scanner::skip_string(char quote) {
  size_t end = at_ + 1;
  while (end < text_.size() && text_[end] != quote && text_[end] != '\n') end += text_[end] == '\\' ? 2 : 1;
  bool ends = end < text_.size() && text_[end] == quote && (quote == '"' || end - at_ <= 12);
  if (!ends) return bump();
  while (at_ <= end) bump();
}

// {...} with the braces inside, but not those in comments and strings.
void Scanner::skip_code() {
  Place start = place();
  size_t depth = 0;
  do {
    if (done()) return add_error(problems_, start, "this block has no end: } is missing");
    char c = peek();
    if (c == '"' || c == '\'') {
      skip_string(c);
    } else if (c == '/' && (peek(1) == '/' || peek(1) == '*')) {
      skip_blanks();
    } else {
      if (c == '{') depth++;
      if (c == '}') depth--;
      bump();
    }
  } while (depth > 0);
}

void Scanner::skip_prologue() {
  Place start{line_, column_ - 1};  // of the %
  while (!done() && !(peek() == '%' && peek(1) == '}')) bump();
  if (done()) return add_error(problems_, start, "this code has no end: %} is missing");
  bump(), bump();
  warn_once("%{", start, "code %{...%} is skipped: a grammar only says what the text may be");
}

// The arguments of an ignored declaration end before the next declaration.
void Scanner::skip_arguments() {
  for (skip_blanks(); !done() && peek() != '%'; skip_blanks()) {
    if (peek() == '{') {
      skip_code();
    } else if (peek() == '"' || peek() == '\'') {
      skip_string(peek());
    } else {
      bump();
    }
  }
}

// <type> of a symbol or [name] of a symbol: for actions only. False if there is no end on this line.
bool Scanner::skip_tag(char open, char close) {
  size_t end = at_ + 1, depth = 1;
  for (; end < text_.size() && text_[end] != '\n'; end++) {
    if (text_[end] == open) depth++;
    if (text_[end] == close && --depth == 0) break;
  }
  if (end >= text_.size() || depth > 0) return false;
  while (at_ <= end) bump();
  return true;
}

Token Scanner::next() {
  for (;;) {
    skip_blanks();
    if (done()) return {Token::Kind::End, {}, place()};
    Place start = place();
    char c = peek();
    if (is_name_start(c)) return name(Token::Kind::Name, at_, start);
    if (is_digit(c)) return name(Token::Kind::Number, at_, start);
    if (c == '"' || c == '\'') {
      Token token = quoted();
      if (token.kind == Token::Kind::Quoted) return token;
      continue;
    }
    if (c == '%') {
      Token token = directive();
      if (token.kind != Token::Kind::End) return token;
      continue;
    }
    if (c == '{') {
      warn_once("{", start, "actions {...} are skipped: a grammar only says what the text may be");
      skip_code();
      continue;
    }
    if ((c == '<' && skip_tag('<', '>')) || (c == '[' && in_rules_ && skip_tag('[', ']'))) continue;
    std::string_view rest = text_.substr(at_);
    bump();
    if (c == ':') return {Token::Kind::Colon, rest.substr(0, 1), start};
    if (c == '|') return {Token::Kind::Bar, rest.substr(0, 1), start};
    if (c == ';') return {Token::Kind::Semicolon, rest.substr(0, 1), start};
    size_t size = 1;
    while ((static_cast<uint8_t>(peek()) & 0xC0) == 0x80) bump(), size++;
    Text message("unexpected character '");
    message << rest.substr(0, size) << '\'';
    if (c == '/') message << ": a regex stands inside quotes, \"/.../\"";
    if (c == '}') message << ": it closes no block";
    add_error(problems_, start, message);
  }
}

// On the same line, no escapes. Without an end, the rest of the line is dropped and the kind is End.
Token Scanner::quoted() {
  Place start = place();
  char quote = peek();
  bump();
  size_t first = at_;
  while (!done() && peek() != quote && peek() != '\n') bump();
  std::string_view content = text_.substr(first, at_ - first);
  if (peek() != quote || done()) {
    Text message("this quoted text has no end: ");
    add_error(problems_, start, message << quote << " is missing on this line (there are no escapes)");
    return {};
  }
  bump();
  if (content.empty()) {
    add_error(problems_, start, "an empty quoted text: write %empty, or nothing, for an empty alternative");
    return {};
  }
  return {Token::Kind::Quoted, content, start};
}

Token Scanner::directive() {
  Place start = place();
  size_t first = at_;
  bump();
  if (peek() == '%') return bump(), in_rules_ = true, Token{Token::Kind::Separator, text_.substr(first, 2), start};
  if (peek() == '{') return skip_prologue(), Token{};
  Token token = name(Token::Kind::Directive, first, start);
  if (token.text == "%json") return json(start);
  if (in_rules_ || !is_ignored(token.text)) return token;
  Text message(token.text);
  warn_once(token.text, start, message << " is skipped: it matters to a generated parser only");
  skip_arguments();
  return {};
}

// %json {...}: a schema, up to the brace that closes it.
Token Scanner::json(Place start) {
  skip_blanks();
  size_t first = at_;
  if (peek() != '{') return add_error(problems_, start, "%json is followed by a schema in braces"), Token{};
  size_t depth = 0;
  do {
    char c = peek();
    if (done()) return add_error(problems_, start, "the schema of this %json has no end: } is missing"), Token{};
    if (c == '"') {
      for (bump(); !done() && peek() != '"'; bump())
        if (peek() == '\\') bump();
    }
    if (c == '{') depth++;
    if (c == '}') depth--;
    if (!done()) bump();
  } while (depth > 0);
  return {Token::Kind::Json, text_.substr(first, at_ - first), start};
}

Token Scanner::name(Token::Kind kind, size_t start, Place place) {
  while (is_name(peek())) bump();
  return {kind, text_.substr(start, at_ - start), place};
}

}  // namespace aici::grammar
