#include "aici/json_reader.hpp"

#include "aici/json.hpp"
#include "aici/utf8.hpp"

namespace aici::json {

bool Reader::refuse_at(size_t position, std::string_view message) {
  if (!problem_) problem_ = {position, message};
  return false;
}

bool Reader::accept(char c) {
  while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos) at_++;
  if (problem_ || at_ == text_.size() || text_[at_] != c) return false;
  at_++;
  return true;
}

bool Reader::expect(char c, std::string_view message) { return accept(c) || refuse(message); }

bool Reader::end() {
  accept('\0');
  return !problem_ && (at_ >= text_.size() || refuse("nothing may follow the value"));
}

bool Reader::string(Text& out, std::string_view message) {
  if (!expect('"', message)) return false;
  while (at_ < text_.size() && text_[at_] != '"') {
    auto byte = static_cast<uint8_t>(text_[at_]);
    if (byte == '\\') {
      if (!escape(out)) return false;
    } else if (byte < 0x20) {
      return refuse("a control character in a string must be escaped");
    } else if (byte < 0x80) {
      out << text_[at_++];
    } else {
      size_t start = at_;
      if (!next_code_point(text_, at_)) return refuse("not UTF-8");
      out << text_.substr(start, at_ - start);
    }
  }
  return at_++ < text_.size() || refuse_at(text_.size(), "the string does not end");
}

bool Reader::escape(Text& out) {
  static constexpr std::string_view LETTERS = "\"\\/bfnrt", MEANINGS = "\"\\/\b\f\n\r\t";
  size_t start = at_++;
  char c = at_ < text_.size() ? text_[at_++] : '\0';
  if (size_t letter = LETTERS.find(c); letter != std::string_view::npos) {
    out << MEANINGS[letter];
    return true;
  }
  std::optional<uint32_t> code = c == 'u' ? hex4() : std::nullopt;
  if (!code) return refuse_at(start, "JSON knows no such escape");
  if (*code >= 0xD800 && *code < 0xDC00 && text_.substr(at_, 2) == "\\u") {
    at_ += 2;
    std::optional<uint32_t> low = hex4();
    if (low && *low >= 0xDC00 && *low < 0xE000) {
      encode_utf8(0x10000 + ((*code - 0xD800) << 10) + (*low - 0xDC00), out);
      return true;
    }
  }
  if (*code >= 0xD800 && *code < 0xE000) return refuse_at(start, "half a surrogate pair is not a character");
  encode_utf8(*code, out);
  return true;
}

std::optional<uint32_t> Reader::hex4() {
  uint32_t code = 0;
  for (size_t end = at_ + 4; at_ < end; at_++) {
    char c = at_ < text_.size() ? text_[at_] : '\0';
    char lower = static_cast<char>(c | 0x20);
    if (c >= '0' && c <= '9') {
      code = code * 16 + static_cast<uint32_t>(c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      code = code * 16 + static_cast<uint32_t>(lower - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return code;
}

Text describe(const Problem& problem, std::string_view text) {
  size_t line = 1, column = 1;
  for (char c : text.substr(0, problem.position)) {
    bool continues = (static_cast<uint8_t>(c) & 0xC0) == 0x80;  // the second byte of a character, or a later one
    c == '\n' ? (line++, column = 1) : column += !continues;
  }
  Text out("the argument is wrong at line ");
  return out << line << ", column " << column << ": " << problem.message;
}

Text answer(const std::optional<Problem>& problem) {
  if (!problem) return Text("{}");
  Text out("{\"position\":");
  return out << problem->position << ",\"message\":" << quoted(problem->message) << '}';
}

}  // namespace aici::json
