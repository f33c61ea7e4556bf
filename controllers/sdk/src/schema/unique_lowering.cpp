#include <algorithm>

#include "aici/schema/lowering.hpp"

// Arrays with uniqueItems.
namespace aici::schema {

using regex::ExprId;
using regex::NOTHING;
using regex::UNBOUNDED;

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
ExprId Lowering::unique_array(const Array& array) {
  auto len = static_cast<uint32_t>(array.prefix.size());
  std::vector<Text> all;
  std::vector<uint32_t> allowed;  // (positions,) bit i: all[i] may stand there; the last is for all further positions
  bool finite = std::ranges::all_of(array.contains, [](const Contains& c) { return c.from == 0; });
  for (uint32_t i = 0; i <= len && finite; i++)
    if (i < array.max) finite = list_values(array.item(i), all);
  if (!finite) return remembering_array(array);
  for (uint32_t i = 0; i <= len; i++) {
    std::vector<Text> some;
    list_values(array.item(i), some);
    uint32_t bits = 0;
    for (size_t v = 0; v < all.size(); v++)
      if (std::ranges::any_of(some, [&](const Text& text) { return text.view() == all[v].view(); })) bits |= 1u << v;
    allowed.push_back(bits);
  }
  std::vector<uint32_t> counted = counted_values(array, all);  // (contains,)
  auto may_end = [&](uint32_t set) {
    for (size_t i = 0; i < counted.size(); i++) {
      auto count = static_cast<uint32_t>(__builtin_popcount(set & counted[i]));
      if (count < array.contains[i].min || count > array.contains[i].max) return false;
    }
    return true;
  };
  // From the full set down, so that the text that follows is known.
  ExprId end = join(space_, bytes("]"));
  std::vector<ExprId> after(size_t{1} << all.size(), NOTHING);
  for (uint32_t set = 1u << all.size(); set-- > 0;) {
    auto written = static_cast<uint32_t>(__builtin_popcount(set));
    std::vector<ExprId> ways;
    if (written >= array.min && written <= array.max && may_end(set)) ways.push_back(end);
    for (uint32_t v = 0; v < all.size() && written < array.max; v++)
      if (!(set >> v & 1) && (allowed[std::min(written, len)] >> v & 1))
        ways.push_back(join(join(written ? comma_ : space_, bytes(all[v])), after[set | 1u << v]));
    ExprId e = exprs_.alt(ways);
    if (e == NOTHING) continue;
    exprs_.define(after[set] = exprs_.rule(), e);
  }
  return join(bytes("["), after[0]);
}

// For each `contains` the bits of the values that count.
std::vector<uint32_t> Lowering::counted_values(const Array& array, const std::vector<Text>& all) {
  std::vector<uint32_t> counted;
  for (const Contains& contains : array.contains) {
    std::vector<Text> some;
    for (uint32_t i = 0; i <= array.prefix.size(); i++) list_values(evaluator_.meet(array.item(i), contains.item), some);
    uint32_t bits = 0;
    for (size_t v = 0; v < all.size(); v++)
      if (std::ranges::any_of(some, [&](const Text& text) { return text.view() == all[v].view(); })) bits |= 1u << v;
    counted.push_back(bits);
  }
  return counted;
}

// The automaton remembers the texts of the items so far (Exprs::unique_items).
ExprId Lowering::remembering_array(const Array& array) {
  if (!array.contains.empty()) return counted_unique_array(array);
  regex::Exprs::UniqueItems items;
  auto len = static_cast<uint32_t>(array.prefix.size());
  for (uint32_t i = 0; i <= len; i++)
    items.steps.push_back({{{i < array.max ? plain_item(array.item(i)) : NOTHING, std::min(i + 1, len)}}});
  return different_items(static_cast<regex::Exprs::UniqueItems&&>(items), array);
}

// `items`: its steps. Spaces and counts are those of the array.
ExprId Lowering::different_items(regex::Exprs::UniqueItems items, const Array& array) {
  uint32_t firsts = 0;  // of items behind the first: bit 0 strings, 1 objects, 2 arrays, 3 others
  auto len = static_cast<uint32_t>(array.prefix.size());
  for (uint32_t i = std::min(len, 1u); i <= len && i < array.max; i++) {
    const Shapes& shapes = evaluator_.shapes(array.item(i));
    bool others = shapes.null || shapes.no || shapes.yes || !shapes.numbers.empty();
    firsts |= (shapes.strings.empty() ? 0u : 1u) | (shapes.objects.empty() ? 0u : 2u) | (shapes.arrays.empty() ? 0u : 4u) | (others ? 8u : 0u);
  }
  items.first = firsts == 1 ? '"' : firsts == 2 ? '{' : firsts == 4 ? '[' : 0;
  items.space = space_, items.comma = comma_, items.colon = colon_, items.end = join(space_, bytes("]"));
  items.min = std::max(array.min, 1u), items.max = array.max;
  bool may_be_empty = array.min == 0 && items.steps[0].missing == 0 && !items.repeats;
  ExprId none = may_be_empty ? items.end : NOTHING, some = exprs_.unique_items(static_cast<regex::Exprs::UniqueItems&&>(items));
  return join(bytes("["), exprs_.alt({none, join(space_, some)}));
}

// What is left if uniqueItems is negated: some item comes twice.
ExprId Lowering::repeating_array(const Array& array) {
  if (array.max < 2) return NOTHING;
  if (!array.prefix.empty() || !array.contains.empty()) {
    evaluator_.warn(*array.repeats, "uniqueItems", REPEATS_LEFT_OUT);
    return NOTHING;
  }
  regex::Exprs::UniqueItems items{.steps = {{{{plain_item(array.rest), 0}}}}};
  items.repeats = true;
  return different_items(static_cast<regex::Exprs::UniqueItems&&>(items), array);
}

// A step for each count of items for which a `contains` counts. Whether the items suffice is known beforehand, if there
// are enough texts of those that must come: an item that counts and was written has been counted.
ExprId Lowering::counted_unique_array(const Array& array) {
  auto declined = [&](std::string_view why) {
    if (!evaluator_.may_drop(*array.unique, "uniqueItems", why)) return NOTHING;
    Array any = array;
    any.unique = nullptr;
    return this->array(any, evaluator_.schema_of(array.rest));
  };
  bool from_start = array.prefix.empty() && std::ranges::all_of(array.contains, [](const Contains& c) { return c.from == 0; });
  if (!from_start) return declined("not supported beside both contains and prefixItems");
  // Texts of the values that are all of `parts`: at least so many. Arrays and objects are not looked into.
  auto at_least = [&](std::vector<ConjId> parts, uint32_t wanted) {
    ConjId conj = array.rest;
    for (ConjId part : parts) conj = evaluator_.meet(conj, part);
    const Shapes& shapes = evaluator_.shapes(conj);
    bool is_composite = !shapes.arrays.empty() || !shapes.objects.empty();
    return std::min(is_composite ? 1u : exprs_.num_texts(plain_item(conj), wanted + 1), wanted) >= wanted;
  };
  constexpr std::string_view FEW = "beside contains, so few different items can count that they may run out";
  for (const Contains& c : array.contains) {
    bool is_alone = array.contains.size() == 1;
    if ((c.min > 1 || c.max != UNBOUNDED) && !is_alone) return declined("not supported beside several contains with minContains or maxContains");
    if (c.min > 1 && !at_least({c.item}, c.min)) return declined(FEW);
    if (c.max == UNBOUNDED || array.min <= 1) continue;
    bool others_suffice = true;
    for (ConjId other : evaluator_.outside(c.item)) others_suffice &= at_least({other}, array.min);
    if (!others_suffice && !(array.min <= c.max && at_least({c.item}, array.min))) return declined(FEW);
  }
  if (array.contains.size() > 8) return declined("not supported beside more than 8 contains");
  regex::Exprs::UniqueItems items;
  std::vector<std::vector<uint32_t>> states{std::vector<uint32_t>(array.contains.size())};
  for (size_t n = 0; n < states.size(); n++) {
    if (states.size() > MAX_RULES) return declined("counting the items of contains takes too many states");
    std::vector<regex::Exprs::UniqueItems::Way> ways;
    for (const Choice& choice : choices(array, 0, states[n])) {
      std::vector<uint32_t> counts(states[n]);
      for (size_t i = 0; i < counts.size(); i++) counts[i] += choice.counts >> i & 1;
      ExprId item = choice.value == NEVER ? NOTHING : plain_item(choice.value);
      if (item == NOTHING) continue;
      auto known = std::ranges::find(states, counts);
      if (known == states.end()) states.push_back(counts), known = states.end() - 1;
      ways.push_back({item, static_cast<uint32_t>(known - states.begin())});
    }
    items.steps.push_back({ways, 0});
  }
  auto is_met = [&](const std::vector<uint32_t>& counts) {
    for (size_t i = 0; i < counts.size(); i++)
      if (counts[i] < array.contains[i].min) return false;
    return true;
  };
  for (size_t n = 0; n < states.size(); n++) items.steps[n].missing = is_met(states[n]) ? 0 : UNBOUNDED;
  for (bool changed = true; changed;) {
    changed = false;
    for (auto& step : items.steps)
      for (const auto& way : step.ways)
        if (uint32_t behind = items.steps[way.next].missing; behind != UNBOUNDED && behind + 1 < step.missing) step.missing = behind + 1, changed = true;
  }
  return different_items(static_cast<regex::Exprs::UniqueItems&&>(items), array);
}

// Strings and numbers in one spelling.
ExprId Lowering::plain_item(ConjId conj) {
  if (known_plain_.size() <= conj) known_plain_.resize(conj + 1, NOTHING);
  if (known_plain_[conj] != NOTHING) return known_plain_[conj];
  const Shapes& shapes = evaluator_.shapes(conj);
  std::vector<ExprId> ways;
  if (shapes.null) ways.push_back(bytes("null"));
  if (shapes.no) ways.push_back(bytes("false"));
  if (shapes.yes) ways.push_back(bytes("true"));
  for (const Numbers& numbers : shapes.numbers) ways.push_back(exprs_.both(language(numbers, exprs_), plain_numbers(exprs_)));
  for (const Strings& strings : shapes.strings) ways.push_back(strings_.plain_language(strings));
  if (!shapes.arrays.empty() || !shapes.objects.empty()) ways.push_back(plain_composite(conj));
  check(evaluator_.schema_of(conj));
  if (known_plain_.size() <= conj) known_plain_.resize(conj + 1, NOTHING);
  return known_plain_[conj] = exprs_.alt(ways);
}

}  // namespace aici::schema
