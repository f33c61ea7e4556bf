#include <algorithm>

#include "aici/schema/lowering.hpp"

// Arrays with uniqueItems.
namespace aici::schema {

using json::Value;
using regex::ExprId;
using regex::NOTHING;

bool Lowering::list_values(ConjId conj, std::vector<Text>& out) {
  const Shapes& shapes = evaluator_.shapes(conj);
  if (!shapes.arrays.empty() || !shapes.objects.empty()) return false;
  auto add = [&out](std::string_view text) {
    if (std::ranges::none_of(out, [&](const Text& other) { return other.view() == text; })) out.emplace_back(text);
  };
  if (shapes.null) add("null");
  if (shapes.no) add("false");
  if (shapes.yes) add("true");
  for (const Strings& strings : shapes.strings) {
    if (!strings.values) return false;
    for (std::string_view value : *strings.values) add(strings_.canonical_quoted(value));
  }
  auto add_number = [&add](const Decimal& number) {
    Text text;
    number.write(text);
    add(text);
  };
  for (const Numbers& numbers : shapes.numbers) {
    if (numbers.values) {
      for (const Numbers::Value& value : *numbers.values) add_number(value.number);
    } else if (numbers.whole == Numbers::Whole::Only && numbers.min && numbers.max) {
      Decimal number = numbers.min->value;
      for (size_t i = 0; compare(number, numbers.max->value) <= 0; number = number.plus_one()) {
        if (i++ > MAX_UNIQUE_VALUES) return false;
        if (numbers.has(number)) add_number(number);
      }
    } else {
      return false;
    }
  }
  return out.size() <= MAX_UNIQUE_VALUES;
}

// A rule for each set of values already written.
ExprId Lowering::unique_array(const Array& array, const Value& schema) {
  auto len = static_cast<uint32_t>(array.prefix.size());
  std::vector<Text> all;
  std::vector<uint32_t> allowed;  // (positions,) bit i: all[i] may stand there; the last is for all further positions
  bool finite = array.contains.empty();
  for (uint32_t i = 0; i <= len && finite; i++)
    if (i < array.max) finite = list_values(array.item(i), all);
  if (!finite) return remembering_array(array, schema);
  for (uint32_t i = 0; i <= len; i++) {
    std::vector<Text> some;
    list_values(array.item(i), some);
    uint32_t bits = 0;
    for (size_t v = 0; v < all.size(); v++)
      if (std::ranges::any_of(some, [&](const Text& text) { return text.view() == all[v].view(); })) bits |= 1u << v;
    allowed.push_back(bits);
  }
  // From the full set down, so that the text that follows is known.
  ExprId end = join(space_, bytes("]"));
  std::vector<ExprId> after(size_t{1} << all.size(), NOTHING);
  for (uint32_t set = 1u << all.size(); set-- > 0;) {
    auto written = static_cast<uint32_t>(__builtin_popcount(set));
    std::vector<ExprId> ways;
    if (written >= array.min && written <= array.max) ways.push_back(end);
    for (uint32_t v = 0; v < all.size() && written < array.max; v++)
      if (!(set >> v & 1) && (allowed[std::min(written, len)] >> v & 1))
        ways.push_back(join(join(written ? comma_ : space_, bytes(all[v])), after[set | 1u << v]));
    ExprId e = exprs_.alt(ways);
    if (e == NOTHING) continue;
    exprs_.define(after[set] = exprs_.rule(), e);
  }
  return join(bytes("["), after[0]);
}


// The automaton remembers the texts of the items so far (Exprs::unique_items).
ExprId Lowering::remembering_array(const Array& array, const Value& schema) {
  if (!array.contains.empty()) {
    evaluator_.not_enforced(*array.unique, "uniqueItems", "not enforced beside contains");
    Array any = array;
    any.unique = nullptr;
    return this->array(any, schema);
  }
  std::vector<ExprId> prefix;
  uint32_t firsts = 0;  // of items behind the first: bit 0 strings, 1 objects, 2 arrays, 3 others
  bool has_composite = false;
  for (uint32_t i = 0; i <= array.prefix.size(); i++) {
    if (i >= array.max) break;
    const Shapes& shapes = evaluator_.shapes(array.item(i));
    has_composite |= !shapes.arrays.empty() || !shapes.objects.empty();
    bool others = shapes.null || shapes.no || shapes.yes || !shapes.numbers.empty();
    if (i > 0 || array.prefix.empty())
      firsts |= (shapes.strings.empty() ? 0u : 1u) | (shapes.objects.empty() ? 0u : 2u) | (shapes.arrays.empty() ? 0u : 4u) | (others ? 8u : 0u);
    prefix.push_back(plain_item(array.item(i)));
  }
  if (has_composite) evaluator_.warn(*array.unique, "uniqueItems", "arrays and objects count as different if their texts are");
  uint8_t first = firsts == 1 ? '"' : firsts == 2 ? '{' : firsts == 4 ? '[' : 0;
  ExprId item = NOTHING;
  if (prefix.size() > array.prefix.size()) item = prefix.back(), prefix.pop_back();
  ExprId end = join(space_, bytes("]")), none = array.min == 0 ? end : NOTHING;
  ExprId some = exprs_.unique_items({prefix, item, comma_, end, std::max(array.min, 1u), array.max, first});
  return join(bytes("["), exprs_.alt({none, join(space_, some)}));
}

// Strings and numbers in one spelling.
ExprId Lowering::plain_item(ConjId conj) {
  const Shapes& shapes = evaluator_.shapes(conj);
  std::vector<ExprId> ways;
  if (shapes.null) ways.push_back(bytes("null"));
  if (shapes.no) ways.push_back(bytes("false"));
  if (shapes.yes) ways.push_back(bytes("true"));
  for (const Numbers& numbers : shapes.numbers) ways.push_back(exprs_.both(language(numbers, exprs_), plain_numbers(exprs_)));
  for (const Strings& strings : shapes.strings) ways.push_back(strings_.plain_language(strings));
  if (!shapes.arrays.empty() || !shapes.objects.empty()) ways.push_back(composite(conj));
  return exprs_.alt(ways);
}

}  // namespace aici::schema
