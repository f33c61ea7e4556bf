// A JSON document as a tree that preserves the spelling: the order of keys, and numbers digit by digit.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "aici/text.hpp"

namespace aici::json {

struct Value {
  enum class Kind : uint8_t { Null, False, True, Number, String, Array, Object };

  Kind kind = Kind::Null;
  Text text{};                 // string: the decoded text (UTF-8); number: as written
  std::vector<Text> keys{};    // object: keys[i] belongs to items[i]; keys are unique
  std::vector<Value> items{};  // items of an array or object

  bool is(Kind which) const { return kind == which; }
  bool is_boolean() const { return kind == Kind::True || kind == Kind::False; }
  const Value* find(std::string_view key) const;  // null if there is no such key
};

struct SyntaxProblem {
  uint32_t line, column;  // from 1, in bytes
  Text message;
};

inline constexpr uint32_t MAX_DEPTH = 200;
inline constexpr size_t MAX_TEXT_BYTES = 4 << 20;

// RFC 8259, strictly: a repeated key, a lone surrogate and text that is not UTF-8 are problems too.
std::optional<SyntaxProblem> parse(std::string_view text, Value& out);

// The JSON pointer (RFC 6901) of `target`, a part of `root`: "" is the root.
Text pointer_to(const Value& root, const Value& target);

// Append `key` to a JSON pointer.
void add_step(Text& pointer, std::string_view key);

// The part of `root` at a JSON pointer; null if there is no such part.
const Value* at_pointer(const Value& root, std::string_view pointer);

}  // namespace aici::json
