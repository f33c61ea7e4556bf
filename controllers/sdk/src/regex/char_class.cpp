// Classes: [a-z], \d.
#include <algorithm>

#include "parser_state.hpp"
#include "unicode.hpp"

namespace aici::regex {
namespace {

CodePoints unicode_word() {
  CodePoints set = *unicode_property("L");
  set.add(*unicode_property("N"));
  set.add('_', '_');
  return set;
}

}  // namespace

// The sets of \d, \w and \s: ASCII; under (?u) as in Python's `re` for text; in ECMA-262, \s is Unicode's.
CodePoints Parser::named_set(uint32_t letter) const {
  CodePoints set;
  if (letter == 's') {
    set.add('\t', '\r'), set.add(' ', ' ');
    if (flags_.unicode || ecma()) set.add(*unicode_property("Z"));
    if (flags_.unicode) set.add(0x1C, 0x1F), set.add(0x85, 0x85);
    if (ecma()) set.add(0xFEFF, 0xFEFF);
  } else {
    if (flags_.unicode) return letter == 'd' ? *unicode_property("Nd") : unicode_word();
    set.add('0', '9');
    if (letter == 'w') set.add('A', 'Z'), set.add('a', 'z'), set.add('_', '_');
  }
  return set;
}

CodePoints Parser::either_case(const CodePoints& set) const {
  if (!flags_.ignore_case) return set;
  return flags_.ascii ? set.either_case() : unicode_either_case(set);
}

// Large classes cost a millisecond, and patterns repeat classes. So classes are cached by spelling.
std::optional<ExprId> Parser::known_class() {
  for (const KnownClass& known : known_classes_) {
    size_t size = known.end - known.start;
    if (known.flags != flags_ || text_.size() - at_ < size) continue;
    if (!std::equal(text_.begin() + known.start, text_.begin() + known.end, text_.begin() + at_)) continue;
    at_ += size;
    return known.expr;
  }
  return std::nullopt;
}

ExprId Parser::remember_class(size_t start, ExprId expr) {
  constexpr size_t MANY = 32;
  if (known_classes_.size() < MANY) known_classes_.push_back({start, at_, flags_, expr});
  return expr;
}

ExprId Parser::char_class() {
  size_t start = at_++;
  bool negated = accept('^');
  if (ecma() && peek() == ']') return refuse(at_, "']' as the first of a class means nothing in ECMA-262: write \\] for the character");
  CodePoints characters, sets;  // only characters and their ranges match in either case
  // A ] at the start is a character.
  for (bool first = true; first || peek() != ']'; first = false) {
    size_t item_start = at_;
    Item low = class_item(start);
    if (problem_) return NOTHING;
    bool is_range = peek() == '-' && peek(1) != ']' && peek(1) != END;
    if (!is_range) {
      low.set ? sets.add(*low.set) : characters.add(low.code_point, low.code_point);
      continue;
    }
    if (peek(1) == '-' && !ecma()) return refuse(at_, "set operations are not supported: write \\- for the character");
    at_++;
    Item high = class_item(start);
    if (problem_) return NOTHING;
    if (ecma() && (low.set || high.set)) {  // [\w-.]: three members
      for (Item* item : {&low, &high}) item->set ? sets.add(*item->set) : characters.add(item->code_point, item->code_point);
      characters.add('-', '-');
      continue;
    }
    if (low.set || high.set) return refuse(item_start, "a class such as \\d cannot be an end of a range");
    if (low.code_point > high.code_point) return refuse(item_start, "the range is reversed");
    characters.add(low.code_point, high.code_point);
  }
  at_++;
  sets.add(either_case(characters));
  ExprId expr = any_of(negated ? sets.negated() : sets);
  return expr == NOTHING ? refuse(start, "the class matches no character") : expr;
}

Parser::Item Parser::class_item(size_t start) {
  uint32_t c = peek();
  if (c == END) return refuse(start, "missing ']' for this class"), Item{};
  if (c == '\\') return escape(true);
  if (c == '[' && (peek(1) == ':' || peek(1) == '.' || peek(1) == '='))
    return refuse(at_, "POSIX classes are not supported: write \\[ for the character"), Item{};
  if (!ecma() && c == peek(1) && (c == '-' || c == '&' || c == '~' || c == '|'))
    return refuse(at_, "set operations are not supported: put \\ before the character"), Item{};
  at_++;
  return {c};
}

}  // namespace aici::regex
