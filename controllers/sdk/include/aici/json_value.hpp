// A JSON document as a tree that keeps what was written: the order of keys, and numbers digit by digit.
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
  Text text{};                 // of a string what it means (UTF-8), of a number what is written
  std::vector<Text> keys{};    // of an object: keys[i] belongs to items[i]; no key comes twice
  std::vector<Value> items{};  // of an array or object

  bool is(Kind which) const { return kind == which; }
  bool is_boolean() const { return kind == Kind::True || kind == Kind::False; }
  const Value* find(std::string_view key) const;  // null when this has no such key
};

struct SyntaxProblem {
  uint32_t line, column;  // from 1, in bytes
  Text message;
};

inline constexpr uint32_t MAX_DEPTH = 200;
inline constexpr size_t MAX_TEXT_BYTES = 4 << 20;

// RFC 8259, and nothing else: a key that comes twice, a lone surrogate and text that is not UTF-8 are problems too.
std::optional<SyntaxProblem> parse(std::string_view text, Value& out);

// The JSON pointer (RFC 6901) of `target`, a part of `root`: "" is the root.
Text pointer_to(const Value& root, const Value& target);

// Appends `key` to a JSON pointer.
void add_step(Text& pointer, std::string_view key);

// The part of `root` that a JSON pointer names; null when there is none.
const Value* at_pointer(const Value& root, std::string_view pointer);

}  // namespace aici::json
