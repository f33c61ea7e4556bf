#include "scanner.hpp"

namespace aici::grammar {
namespace {

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name(char c) { return is_name_start(c) || (c >= '0' && c <= '9'); }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v'; }

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

void Scanner::skip_braces() {
  add_error(problems_, place(), "action blocks {...} are not supported: a grammar only says what the text may be");
  size_t depth = 0;
  do {
    if (peek() == '{') depth++;
    if (peek() == '}') depth--;
    bump();
  } while (!done() && depth > 0);
}

Token Scanner::next() {
  for (;;) {
    skip_blanks();
    if (done()) return {Token::Kind::End, {}, place()};
    Place start = place();
    char c = peek();
    if (is_name_start(c)) return name(Token::Kind::Name, at_, start);
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
      skip_braces();
      continue;
    }
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
    if (c == '<') message << ": types of symbols are not supported";
    if (c == '}') message << ": action blocks {...} are not supported";
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
  if (peek() == '%') return bump(), Token{Token::Kind::Separator, text_.substr(first, 2), start};
  if (peek() == '{') {
    add_error(problems_, start, "code %{...%} is not supported");
    while (!done() && !(peek() == '%' && peek(1) == '}')) bump();
    if (!done()) bump(), bump();
    return {};
  }
  return name(Token::Kind::Directive, first, start);
}

Token Scanner::name(Token::Kind kind, size_t start, Place place) {
  while (is_name(peek())) bump();
  return {kind, text_.substr(start, at_ - start), place};
}

}  // namespace aici::grammar
