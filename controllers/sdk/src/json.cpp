#include "aici/json.hpp"

#include "aici/host.hpp"
#include "aici/json_string.hpp"

namespace aici::json {
namespace {

class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) at_++;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    at_++;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) malformed();
  }
  uint64_t number() {
    if (peek() < '0' || peek() > '9') malformed();
    uint64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; at_++) {
      uint64_t digit = static_cast<uint64_t>(text_[at_] - '0');
      if (value > (UINT64_MAX - digit) / 10) malformed();
      value = value * 10 + digit;
    }
    return value;
  }
  std::string_view string() {
    expect('"');
    size_t start = at_;
    for (; at_ < text_.size() && text_[at_] != '"'; at_++)
      if (text_[at_] == '\\') at_++;
    if (at_ >= text_.size()) malformed();
    return text_.substr(start, at_++ - start);
  }
  // A value is skipped by counting brackets: the host's JSON is well formed.
  std::string_view value() {
    peek();
    size_t start = at_;
    int depth = 0;
    do {
      char c = peek();
      if (c == '\0') malformed();
      if (c == '"') {
        string();
      } else if (c == '{' || c == '[') {
        depth++, at_++;
      } else if (c == '}' || c == ']') {
        depth--, at_++;
      } else if (c == ',' || c == ':') {
        at_++;
      } else {
        while (at_ < text_.size() && std::string_view(",:]} \n\t\r").find(text_[at_]) == std::string_view::npos) at_++;
      }
    } while (depth > 0);
    return text_.substr(start, at_ - start);
  }
  [[noreturn]] void malformed() {
    Text why("malformed JSON from the host: ");
    fail((why << text_.substr(0, 200)).view());
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<std::string_view> get(std::string_view text, std::string_view key) {
  Cursor cursor(text);
  cursor.expect('{');
  if (cursor.accept('}')) return std::nullopt;
  do {
    std::string_view name = cursor.string();
    cursor.expect(':');
    std::string_view value = cursor.value();
    if (name == key) return value;
  } while (cursor.accept(','));
  cursor.expect('}');
  return std::nullopt;
}

uint64_t number(std::string_view value) { return Cursor(value).number(); }

std::vector<uint32_t> numbers(std::string_view array) {
  std::vector<uint32_t> values;
  Cursor cursor(array);
  cursor.expect('[');
  if (cursor.accept(']')) return values;
  do {
    uint64_t value = cursor.number();
    if (value > UINT32_MAX) cursor.malformed();
    values.push_back(static_cast<uint32_t>(value));
  } while (cursor.accept(','));
  cursor.expect(']');
  return values;
}

std::vector<std::string_view> elements(std::string_view array) {
  std::vector<std::string_view> values;
  Cursor cursor(array);
  cursor.expect('[');
  if (cursor.accept(']')) return values;
  do values.push_back(cursor.value());
  while (cursor.accept(','));
  cursor.expect(']');
  return values;
}

std::string_view plain_string(std::string_view value) {
  Cursor cursor(value);
  std::string_view content = cursor.string();
  if (content.find('\\') != std::string_view::npos) cursor.malformed();
  return content;
}

std::optional<Text> unescaped(std::string_view value) {
  size_t at = 0;
  Text text;
  if (value.empty() || value[0] != '"' || read_string(value, at, text)) return std::nullopt;
  return text;
}

Text quoted(std::string_view text) {
  static constexpr char HEX[] = "0123456789abcdef";
  Text out("\"");
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out << '\\' << c;
    } else if (c == '\n') {
      out << "\\n";
    } else if (byte < 0x20) {
      out << "\\u00" << HEX[byte >> 4] << HEX[byte & 15];
    } else {
      out << c;
    }
  }
  return out << '"';
}

Text array(const std::vector<uint32_t>& values) {
  Text out("[");
  for (size_t i = 0; i < values.size(); i++) {
    if (i) out << ',';
    out << values[i];
  }
  return out << ']';
}

}  // namespace aici::json
