#include "aici/json_value.hpp"

#include <algorithm>

#include "aici/json_string.hpp"
#include "aici/sort.hpp"
#include "aici/utf8.hpp"

namespace aici::json {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::optional<SyntaxProblem> document(Value& out) {
    if (text_.size() > MAX_TEXT_BYTES) {
      problem_ = {1, 1, Text("the JSON text has ") << text_.size() << " bytes; at most " << MAX_TEXT_BYTES << " can be read"};
      return problem_;
    }
    std::vector<uint32_t> code_points;
    if (std::optional<size_t> bad = decode_utf8(text_, code_points)) {
      at_ = *bad;
      refuse("this byte is not UTF-8");
    } else if (value(out, 0)) {
      skip_space();
      if (at_ < text_.size()) refuse("the document ends before this");
    }
    return problem_;
  }

 private:
  bool value(Value& out, uint32_t depth) {
    skip_space();
    if (depth > MAX_DEPTH) return refuse("nested deeper than 200 levels");
    switch (peek()) {
      case '{':
        return object(out, depth);
      case '[':
        return array(out, depth);
      case '"':
        out.kind = Value::Kind::String;
        return string(out.text);
      case 'n':
        return word(out, "null", Value::Kind::Null);
      case 't':
        return word(out, "true", Value::Kind::True);
      case 'f':
        return word(out, "false", Value::Kind::False);
      default:
        return number(out);
    }
  }

  bool object(Value& out, uint32_t depth) {
    out.kind = Value::Kind::Object;
    std::vector<size_t> places;
    at_++, skip_space();
    if (accept('}')) return true;
    do {
      skip_space();
      places.push_back(at_);
      if (peek() != '"') return refuse(out.keys.empty() ? "expected a key in quotes or }" : "expected a key in quotes");
      Text& key = out.keys.emplace_back();
      if (!string(key)) return false;
      skip_space();
      if (!accept(':')) return refuse("expected : after a key");
      if (!value(out.items.emplace_back(), depth + 1)) return false;
      skip_space();
    } while (accept(','));
    if (!accept('}')) return refuse("expected , or }");
    return keys_differ(out.keys, places);
  }

  bool keys_differ(const std::vector<Text>& keys, const std::vector<size_t>& places) {
    std::vector<uint32_t> order(keys.size());
    for (uint32_t i = 0; i < order.size(); i++) order[i] = i;
    sort(order, [&keys](uint32_t x, uint32_t y) {
      int sign = keys[x].view().compare(keys[y].view());
      return sign ? sign < 0 : x < y;
    });
    for (size_t i = 1; i < order.size(); i++) {
      if (keys[order[i - 1]].view() != keys[order[i]].view()) continue;
      at_ = places[order[i]];
      return refuse((Text("the key ") << text_.substr(at_, 60).substr(0, keys[order[i]].size() + 2) << " comes twice").view());
    }
    return true;
  }

  bool array(Value& out, uint32_t depth) {
    out.kind = Value::Kind::Array;
    at_++, skip_space();
    if (accept(']')) return true;
    do {
      if (!value(out.items.emplace_back(), depth + 1)) return false;
      skip_space();
    } while (accept(','));
    return accept(']') || refuse("expected , or ]");
  }

  bool word(Value& out, std::string_view word, Value::Kind kind) {
    if (text_.substr(at_, word.size()) != word) return refuse("expected a JSON value");
    at_ += word.size();
    out.kind = kind;
    return true;
  }

  bool number(Value& out) {
    size_t start = at_;
    auto digits = [this] {
      size_t first = at_;
      while (is_digit(peek())) at_++;
      return at_ > first || refuse("expected a digit");
    };
    accept('-');
    if (!is_digit(peek())) return refuse(at_ > start ? "expected a digit" : "expected a JSON value");
    if (accept('0')) {
      if (is_digit(peek())) return refuse("a number does not start with 0 and another digit");
    } else if (!digits()) {
      return false;
    }
    if (accept('.') && !digits()) return false;
    if (accept('e') || accept('E')) {
      if (!accept('+')) accept('-');
      if (!digits()) return false;
    }
    out.kind = Value::Kind::Number;
    out.text << text_.substr(start, at_ - start);
    return true;
  }

  bool string(Text& out) {
    const char* why = read_string(text_, at_, out);
    return !why || refuse(why);
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool accept(char c) { return peek() == c && at_ < text_.size() ? (at_++, true) : false; }
  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \n\t\r").find(text_[at_]) != std::string_view::npos) at_++;
  }

  bool refuse(std::string_view why) {
    if (problem_) return false;
    std::string_view before = text_.substr(0, at_);
    size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    auto line = static_cast<uint32_t>(1 + std::count(before.begin(), before.end(), '\n'));
    problem_ = {line, static_cast<uint32_t>(at_ - line_start + 1), Text(at_ < text_.size() ? "" : "at the end: ")};
    problem_->message << why;
    return false;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::optional<SyntaxProblem> problem_;
};

bool append_path(const Value& from, const Value& target, std::vector<uint32_t>& path) {
  if (&from == &target) return true;
  for (uint32_t i = 0; i < from.items.size(); i++) {
    path.push_back(i);
    if (append_path(from.items[i], target, path)) return true;
    path.pop_back();
  }
  return false;
}

// A step of a pointer: ~1 is /, ~0 is ~.
bool names(std::string_view step, std::string_view key) {
  size_t at = 0;
  for (size_t i = 0; i < step.size(); i++, at++) {
    char c = step[i];
    if (c == '~' && i + 1 < step.size()) c = step[++i] == '1' ? '/' : '~';
    if (at >= key.size() || key[at] != c) return false;
  }
  return at == key.size();
}

}  // namespace

const Value* Value::find(std::string_view key) const {
  for (size_t i = 0; i < keys.size(); i++)
    if (keys[i].view() == key) return &items[i];
  return nullptr;
}

std::optional<SyntaxProblem> parse(std::string_view text, Value& out) { return Parser(text).document(out); }

Text pointer_to(const Value& root, const Value& target) {
  Text pointer;
  std::vector<uint32_t> path;
  append_path(root, target, path);
  const Value* at = &root;
  for (uint32_t index : path) {
    if (at->is(Value::Kind::Array)) {
      pointer << '/' << index;
    } else {
      add_step(pointer, at->keys[index]);
    }
    at = &at->items[index];
  }
  return pointer;
}

void add_step(Text& pointer, std::string_view key) {
  pointer << '/';
  for (char c : key)
    if (c == '~' || c == '/') {
      pointer << (c == '/' ? "~1" : "~0");
    } else {
      pointer << c;
    }
}

const Value* at_pointer(const Value& root, std::string_view pointer) {
  const Value* at = &root;
  while (!pointer.empty()) {
    if (pointer[0] != '/') return nullptr;
    std::string_view step = pointer.substr(1, pointer.find('/', 1) - 1);
    pointer.remove_prefix(step.size() + 1);
    const Value* next = nullptr;
    if (at->is(Value::Kind::Object)) {
      for (size_t i = 0; i < at->keys.size() && !next; i++)
        if (names(step, at->keys[i])) next = &at->items[i];
    } else if (at->is(Value::Kind::Array) && !step.empty() && step.size() < 7 && (step == "0" || step[0] != '0')) {
      size_t index = 0;
      for (char c : step) {
        if (!is_digit(c)) return nullptr;
        index = index * 10 + static_cast<size_t>(c - '0');
      }
      if (index < at->items.size()) next = &at->items[index];
    }
    if (!next) return nullptr;
    at = next;
  }
  return at;
}

}  // namespace aici::json
