// Classes: [a-z], \d.
#include "parser_state.hpp"

namespace aici::regex {

// The sets of \d, \w and \s.
CodePoints Parser::named_set(uint32_t letter) const {
  CodePoints set;
  if (letter == 's') {
    set.add('\t', '\r'), set.add(' ', ' ');
    if (!ecma()) return set;
    for (uint32_t c : {0xA0, 0x1680, 0x202F, 0x205F, 0x3000, 0xFEFF}) set.add(c, c);
    set.add(0x2000, 0x200A), set.add(0x2028, 0x2029);
    return set;
  }
  set.add('0', '9');
  if (letter == 'd') return set;
  set.add('A', 'Z'), set.add('a', 'z'), set.add('_', '_');
  return set;
}

CodePoints Parser::either_case(const CodePoints& set) const { return flags_.ignore_case ? set.either_case() : set; }

ExprId Parser::char_class() {
  size_t start = at_++;
  bool negated = accept('^');
  if (ecma() && peek() == ']') return refuse(at_, "']' as the first of a class means nothing in ECMA-262: write \\] for the character");
  CodePoints characters, sets;  // only characters and their ranges are matched in either case
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
    if (peek(1) == '-') return refuse(at_, "set operations are not supported: write \\- for the character");
    at_++;
    Item high = class_item(start);
    if (problem_) return NOTHING;
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
  if (c == peek(1) && (c == '-' || c == '&' || c == '~' || c == '|'))
    return refuse(at_, "set operations are not supported: put \\ before the character"), Item{};
  at_++;
  return {c};
}

}  // namespace aici::regex
