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
    : options_(options), evaluator_(evaluator), exprs_(exprs), strings_(strings) {
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
    std::vector<ExprId> ways;
    plain_ = rule.plain;
    if (!rule.plain) ways.push_back(scalars(shapes));
    for (const Array& one : shapes.arrays) ways.push_back(array(one, schema));
    for (const Object& one : shapes.objects) ways.push_back(object(one, schema));
    check(schema);
    exprs_.define(rule.name, exprs_.alt(ways));
  }
  return root;
}

ExprId Lowering::value(ConjId conj) {
  if (plain_) return plain_item(conj);
  if (known_.size() <= conj) known_.resize(conj + 1, UNKNOWN);
  if (known_[conj] != UNKNOWN) return known_[conj];
  const Shapes& shapes = evaluator_.shapes(conj);
  if (known_.size() <= conj) known_.resize(conj + 1, UNKNOWN);
  if (shapes.arrays.empty() && shapes.objects.empty()) {
    known_[conj] = scalars(shapes);
    check(evaluator_.schema_of(conj));
    return known_[conj];
  }
  ExprId name = exprs_.rule();
  to_do_.push_back({conj, name, false});
  return known_[conj] = name;
}

// The first schema that is too complex gets the blame.
void Lowering::check(const Value& schema) {
  if (exprs_.error() && !failed_) evaluator_.refuse(schema, "", exprs_.error());
  failed_ = exprs_.error() != nullptr;
}

// The arrays and objects of `conj`, inside of a unique item.
ExprId Lowering::plain_composite(ConjId conj) {
  if (known_composite_.size() <= conj) known_composite_.resize(conj + 1, UNKNOWN);
  if (known_composite_[conj] != UNKNOWN) return known_composite_[conj];
  ExprId name = exprs_.rule();
  to_do_.push_back({conj, name, true});
  return known_composite_[conj] = name;
}

ExprId Lowering::scalars(const Shapes& shapes) {
  std::vector<ExprId> ways;
  if (shapes.null) ways.push_back(bytes("null"));
  if (shapes.no) ways.push_back(bytes("false"));
  if (shapes.yes) ways.push_back(bytes("true"));
  for (const Numbers& numbers : shapes.numbers) ways.push_back(language(numbers, exprs_));
  for (const Strings& strings : shapes.strings) ways.push_back(strings_.language(strings));
  return exprs_.alt(ways);
}

ExprId Lowering::array(const Array& array, const Value& schema) {
  if (array.repeats) return repeating_array(array);
  if (array.unique && array.max > 1) return unique_array(array);
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

}  // namespace aici::schema
