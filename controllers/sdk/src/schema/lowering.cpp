#include "aici/schema/lowering.hpp"

#include <algorithm>

namespace aici::schema {
namespace {

using json::Value;
using regex::EMPTY;
using regex::ExprId;
using regex::NOTHING;
using regex::UNBOUNDED;

constexpr ExprId UNKNOWN = UINT32_MAX;
constexpr uint32_t MAX_INDENTATION = 64;

uint32_t less(uint32_t count, uint32_t by) { return count == UNBOUNDED ? UNBOUNDED : count > by ? count - by : 0; }

}  // namespace

Lowering::Lowering(Evaluator& evaluator, regex::Exprs& exprs, StringLanguages& strings, const Options& options)
    : evaluator_(evaluator), exprs_(exprs), strings_(strings) {
  if (options.space == Space::Flexible) {
    ExprId blanks = exprs.alt({exprs.repeat(bytes(" "), 0, MAX_INDENTATION), exprs.repeat(bytes("\t"), 0, MAX_INDENTATION)});
    space_ = join(exprs.repeat(bytes("\n"), 0, 1), blanks);
    comma_ = join(space_, bytes(","), space_), colon_ = join(space_, bytes(":"), space_);
  } else {
    uint32_t least = options.space == Space::Spaced ? 1 : 0, most = options.space == Space::None ? 0 : 1;
    ExprId blank = exprs.repeat(bytes(" "), least, most);
    space_ = EMPTY;
    comma_ = join(bytes(","), blank), colon_ = join(bytes(":"), blank);
  }
}

ExprId Lowering::bytes(std::string_view text) {
  ExprId e = EMPTY;
  for (size_t i = text.size(); i-- > 0;) {
    auto byte = static_cast<uint8_t>(text[i]);
    e = exprs_.concat(exprs_.bytes(regex::ByteSet::range(byte, byte)), e);
  }
  return e;
}

ExprId Lowering::texts(ConjId conj) {
  ExprId root = value(conj);
  while (!to_do_.empty()) {
    Rule rule = to_do_.back();
    to_do_.pop_back();
    const Shapes& shapes = evaluator_.shapes(rule.conj);
    const Value& schema = evaluator_.schema_of(rule.conj);
    std::vector<ExprId> ways{scalars(shapes, schema)};
    for (const Array& one : shapes.arrays) ways.push_back(array(one, schema));
    for (const Object& one : shapes.objects) ways.push_back(object(one, schema));
    exprs_.define(rule.name, exprs_.alt(ways));
  }
  return root;
}

ExprId Lowering::value(ConjId conj) {
  if (known_.size() <= conj) known_.resize(conj + 1, UNKNOWN);
  if (known_[conj] != UNKNOWN) return known_[conj];
  const Shapes& shapes = evaluator_.shapes(conj);
  if (known_.size() <= conj) known_.resize(conj + 1, UNKNOWN);
  if (shapes.arrays.empty() && shapes.objects.empty()) return known_[conj] = scalars(shapes, evaluator_.schema_of(conj));
  ExprId name = exprs_.rule();
  to_do_.push_back({conj, name});
  return known_[conj] = name;
}

ExprId Lowering::scalars(const Shapes& shapes, const Value& schema) {
  std::vector<ExprId> ways;
  if (shapes.null) ways.push_back(bytes("null"));
  if (shapes.no) ways.push_back(bytes("false"));
  if (shapes.yes) ways.push_back(bytes("true"));
  for (const Numbers& numbers : shapes.numbers) {
    std::optional<ExprId> e = language(numbers, exprs_);
    if (!e) evaluator_.refuse(schema, "", "what multiples of these are written like is too complex");
    ways.push_back(e.value_or(NOTHING));
  }
  for (const Strings& strings : shapes.strings) ways.push_back(strings_.language(strings));
  return exprs_.alt(ways);
}

ExprId Lowering::array(const Array& array, const Value& schema) {
  if (array.unique && array.max > 1) return unique_array(array, schema);
  if (!array.contains.empty()) return counted_array(array, schema);
  auto len = static_cast<uint32_t>(array.prefix.size());
  ExprId end = join(space_, bytes("]"));
  // `e` is the text that follows after i items are written.
  uint32_t i = std::max(std::min(len, array.max), 1u);
  ExprId more = array.max > i && array.rest != NEVER ? join(comma_, value(array.item(std::max(i, len)))) : NOTHING;
  ExprId e = join(exprs_.repeat(more, less(array.min, i), less(array.max, i)), end);
  for (; i-- > 1;) {
    ExprId next = join(comma_, value(array.item(i)), e);
    e = i >= array.min ? exprs_.alt({end, next}) : next;
  }
  ExprId some = array.max > 0 ? join(space_, value(array.item(0)), e) : NOTHING;
  ExprId none = array.min == 0 ? join(space_, bytes("]")) : NOTHING;
  return join(bytes("["), exprs_.alt({none, some}));
}

std::vector<Lowering::Choice> Lowering::choices(const Array& array, uint32_t position, const std::vector<uint32_t>& counts) {
  std::vector<Choice> all{{array.item(position), 0}};
  for (size_t i = 0; i < array.contains.size(); i++) {
    const Contains& c = array.contains[i];
    if (position < c.from || (c.max == UNBOUNDED && counts[i] >= c.min)) continue;
    std::vector<Choice> split;
    for (const Choice& choice : all) {
      if (c.max == UNBOUNDED) {
        split.push_back(choice);  // whether this item counts too does not matter
      } else {
        for (ConjId other : evaluator_.outside(c.item)) split.push_back({evaluator_.meet(choice.value, other), choice.counts});
      }
      if (counts[i] < c.max) split.push_back({evaluator_.meet(choice.value, c.item), choice.counts | 1u << i});
    }
    all.swap(split);
  }
  return all;
}

// A rule for each number of items and for each number of counted items.
ExprId Lowering::counted_array(const Array& array, const Value& schema) {
  struct State {
    uint32_t position;
    std::vector<uint32_t> counts;
    ExprId rule;  // the text that follows: items, each with its comma, and the end
    bool operator==(const State&) const = default;
  };
  // All positions from `last` on are alike; the first is different, since no comma comes before it.
  uint32_t last = std::max({static_cast<uint32_t>(array.prefix.size()), array.min, 1u});
  if (array.max != UNBOUNDED) last = std::max(last, array.max);
  for (const Contains& c : array.contains) last = std::max(last, c.from);
  std::vector<State> states;
  bool too_many = last > MAX_RULES || array.contains.size() > 8;
  auto state_of = [&](uint32_t position, const std::vector<uint32_t>& counts) {
    for (const State& state : states)
      if (state.position == position && state.counts == counts) return state.rule;
    too_many |= states.size() >= MAX_RULES;
    if (too_many) return NOTHING;
    states.push_back({position, counts, exprs_.rule()});
    return states.back().rule;
  };
  ExprId start = state_of(0, std::vector<uint32_t>(array.contains.size()));
  for (size_t n = 0; n < states.size(); n++) {
    State state = states[n];
    bool may_end = state.position >= array.min;
    for (size_t i = 0; i < array.contains.size(); i++) may_end &= state.counts[i] >= array.contains[i].min;
    std::vector<ExprId> ways;
    if (may_end) ways.push_back(join(space_, bytes("]")));
    if (state.position < array.max)
      for (const Choice& choice : choices(array, state.position, state.counts)) {
        std::vector<uint32_t> counts(state.counts);
        for (size_t i = 0; i < counts.size(); i++)
          if (choice.counts >> i & 1) counts[i]++;
        if (choice.value == NEVER) continue;
        ExprId item = join(state.position ? comma_ : space_, value(choice.value));
        if (item != NOTHING) ways.push_back(join(item, state_of(std::min(state.position + 1, last), counts)));
      }
    exprs_.define(state.rule, exprs_.alt(ways));
  }
  if (too_many) {
    evaluator_.refuse(schema, "contains", "counting these items takes too many states: lower minItems, maxItems or maxContains");
    return NOTHING;
  }
  return join(bytes("["), start);
}

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
  if (!finite) {
    Text why("supported where items are a few values (enum, const; at most ");
    if (evaluator_.may_drop(*array.unique, "uniqueItems", why << MAX_UNIQUE_VALUES << ") without contains")) {
      Array any = array;
      any.unique = nullptr;
      return this->array(any, schema);
    }
    return NOTHING;
  }
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

}  // namespace aici::schema
