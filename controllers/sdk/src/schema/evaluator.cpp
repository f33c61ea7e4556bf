#include "aici/schema/evaluator.hpp"

#include <algorithm>

#include "aici/sort.hpp"

namespace aici::schema {

using json::Value;
using Kind = Value::Kind;

Evaluator::Evaluator(const Value& root, regex::Exprs& exprs, StringLanguages& strings, const Options& options, Report& report)
    : root_(root), exprs_(exprs), strings_(strings), options_(options), report_(report), references_(root),
      tracks_scope_(mentions(root, "$dynamicRef") || mentions(root, "$recursiveRef")),
      tracks_evaluated_(mentions(root, "unevaluatedItems") || mentions(root, "unevaluatedProperties")), current_(&root) {
  intern({});
  conjs_.push_back({UINT32_MAX});  // NEVER, which equals no list of literals
  memo_.resize(2), under_way_.resize(2);
  memo_[ANYTHING] = std::make_unique<Shapes>(anything());
  memo_[NEVER] = std::make_unique<Shapes>();
}

ConjId Evaluator::conj_of(const Value& schema) {
  const Value* at = &schema;
  uint32_t scope = entered(scope_, schema);
  // A schema that is only a reference is the target of the reference.
  for (uint32_t hops = 0; at->is(Kind::Object) && references_.is_only_reference(*at) && hops < 64; hops++) {
    const Value* target = references_.target(*at, at->find("$ref")->text);
    if (!target) break;
    at = target;
    scope = entered(scope, *at);
  }
  if (at->is(Kind::True) || (at->is(Kind::Object) && at->items.empty())) return ANYTHING;
  if (at->is(Kind::False)) return NEVER;
  return conj_of({at, false, false, scope});
}

uint32_t Evaluator::entered(uint32_t scope, const Value& schema) {
  if (!tracks_scope_ || !schema.is(Kind::Object)) return 0;
  std::vector<uint32_t> resources = scopes_[scope];
  uint32_t resource = references_.base_of(schema);
  if (std::ranges::find(resources, resource) != resources.end()) return scope;
  resources.push_back(resource);
  auto same = std::ranges::find(scopes_, resources);
  if (same == scopes_.end()) return scopes_.push_back(resources), static_cast<uint32_t>(scopes_.size() - 1);
  return static_cast<uint32_t>(same - scopes_.begin());
}

ConjId Evaluator::conj_of(Literal literal) {
  bool negated = literal.negated, is_quiet = literal.quiet;
  literal.negated = literal.quiet = false;
  auto hash = [](const Literal& l) {
    auto bits = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(l.at)) * 2 + l.constant + (l.scope << 20);
    return bits * 0x9E3779B1u ^ bits >> 7;
  };
  uint32_t number = literal_table_.find_or_add(
      hash(literal), [&](uint32_t id) { return literals_[id] == literal; },
      [&] {
        literals_.push_back(literal);
        return static_cast<uint32_t>(literals_.size() - 1);
      });
  return intern({number * 4 + (negated ? 2u : is_quiet ? 1u : 0u)});
}

ConjId Evaluator::intern(std::vector<LiteralId> literals) {
  auto hash = [](const std::vector<LiteralId>& list) {
    uint32_t sum = 0;
    for (LiteralId literal : list) sum = (sum ^ literal) * 0x9E3779B1u, sum ^= sum >> 15;
    return sum;
  };
  ConjId id = conj_table_.find_or_add(
      hash(literals), [&](uint32_t other) { return conjs_[other] == literals; },
      [&] {
        conjs_.push_back(literals);
        return static_cast<uint32_t>(conjs_.size() - 1);
      });
  memo_.resize(conjs_.size()), under_way_.resize(conjs_.size());
  return id;
}

ConjId Evaluator::meet(ConjId x, ConjId y) {
  if (x == ANYTHING || x == y || y == NEVER) return y;
  if (y == ANYTHING || x == NEVER) return x;
  std::vector<LiteralId> literals(conjs_[x]);
  literals.insert(literals.end(), conjs_[y].begin(), conjs_[y].end());
  sort(literals, [](LiteralId a, LiteralId b) { return a < b; });
  for (size_t i = 1; i < literals.size(); i++)
    if (literals[i] / 4 == literals[i - 1] / 4 && is_negated(literals[i]) != is_negated(literals[i - 1])) return NEVER;
  // Of a literal and the same, quiet, the first is kept.
  auto is_same = [](LiteralId a, LiteralId b) { return a / 4 == b / 4; };
  literals.erase(std::unique(literals.begin(), literals.end(), is_same), literals.end());
  return intern(static_cast<std::vector<LiteralId>&&>(literals));
}

std::vector<ConjId> Evaluator::outside(ConjId conj) {
  if (conj == NEVER) return {ANYTHING};
  std::vector<ConjId> parts;
  std::vector<LiteralId> literals(conjs_[conj]);
  for (LiteralId literal : literals) {
    Literal other = literals_[literal / 4];
    other.negated = !is_negated(literal), other.quiet = !other.negated;
    parts.push_back(conj_of(other));
  }
  return parts;
}

ConjId Evaluator::quiet(ConjId conj) {
  if (conj == ANYTHING || conj == NEVER) return conj;
  std::vector<LiteralId> literals(conjs_[conj]);
  for (LiteralId& literal : literals)
    if (!is_negated(literal)) literal |= 1;
  return intern(static_cast<std::vector<LiteralId>&&>(literals));
}

Shapes Evaluator::quiet(Shapes shapes) {
  for (Array& array : shapes.arrays) {
    for (ConjId& item : array.prefix) item = quiet(item);
    for (Contains& contains : array.contains) contains.item = quiet(contains.item);
    array.rest = quiet(array.rest);
  }
  for (Object& object : shapes.objects) {
    object.declares = object.keeps_order = false;
    for (Property& property : object.properties) property.value = quiet(property.value), property.place = Property::Place::Free;
    for (Region& region : object.regions) region.value = quiet(region.value);
    for (Region& region : object.some) region.value = quiet(region.value);
  }
  return shapes;
}

const Shapes& Evaluator::shapes(ConjId conj) {
  if (memo_[conj]) return *memo_[conj];
  const Value& schema = schema_of(conj);
  if (under_way_[conj]) {
    refuse(schema, "$ref", "the schema refers to itself and nothing comes in between");
    return *memo_[NEVER];
  }
  if (depth_ >= MAX_DEPTH) {
    refuse(schema, "", "schemas within schemas are deeper than 100 levels here");
    return *memo_[NEVER];
  }
  const Value* outer = current_;
  current_ = &schema;
  depth_++;
  under_way_[conj] = true;
  std::vector<LiteralId> literals(conjs_[conj]);
  Shapes result;
  size_t known = 0;
  if (literals.size() > 2) {  // alternatives grow by a literal at a time
    const auto& before = memo_[intern({literals.begin(), literals.end() - 1})];
    if (before) result = *before, known = literals.size() - 1;
  }
  for (size_t i = known; i < literals.size(); i++) {
    if (literals.size() == 1) {
      Literal literal = literals_[literals[0] / 4];
      literal.negated = is_negated(literals[0]), literal.quiet = literals[0] & 1;
      result = shapes_of(literal);
    } else {
      const Shapes& part = shapes(intern({literals[i]}));
      result = i == 0 ? part : intersect(result, part);
    }
  }
  under_way_[conj] = false;
  depth_--;
  current_ = outer;
  if (gave_up_) return *memo_[NEVER];
  memo_[conj] = std::make_unique<Shapes>(static_cast<Shapes&&>(result));
  return *memo_[conj];
}

Shapes Evaluator::shapes_of(const Literal& literal) {
  uint32_t outer = scope_;
  scope_ = literal.scope;
  Literal positive = literal;
  positive.negated = positive.quiet = false;
  Shapes result = literal.negated    ? complement(shapes(conj_of(positive)))
                  : literal.quiet    ? quiet(shapes(conj_of(positive)))
                  : literal.constant ? of_constant(*literal.at)
                                     : of_schema(*literal.at);
  scope_ = outer;
  return result;
}

const Value& Evaluator::schema_of(ConjId conj) const {
  return conj == NEVER || conjs_[conj].empty() ? *current_ : *literals_[conjs_[conj][0] / 4].at;
}

Shapes Evaluator::of_constant(const Value& value) {
  Shapes shapes;
  switch (value.kind) {
    case Kind::Null:
      shapes.null = true;
      break;
    case Kind::False:
      shapes.no = true;
      break;
    case Kind::True:
      shapes.yes = true;
      break;
    case Kind::String:
      shapes.strings.emplace_back().values.emplace().push_back(value.text.view());
      break;
    case Kind::Number:
      if (std::optional<Decimal> number = Decimal::from_json(value.text)) {
        shapes.numbers.emplace_back().values.emplace().push_back({*number, value.text.view()});
      } else {
        refuse(value, "", "a number with more than 400 places before or after the point cannot be told from others");
      }
      break;
    case Kind::Array: {
      Array& array = shapes.arrays.emplace_back();
      for (const Value& item : value.items) array.prefix.push_back(conj_of({&item, true, false}));
      array.min = array.max = static_cast<uint32_t>(value.items.size());
      break;
    }
    case Kind::Object: {
      Object& object = shapes.objects.emplace_back();
      for (size_t i = 0; i < value.items.size(); i++)
        object.properties.push_back({value.keys[i].view(), conj_of({&value.items[i], true, false}), true, Property::Place::Declared});
      break;
    }
  }
  return shapes;
}

Shapes Evaluator::of_constants(const std::vector<Value>& values) {
  Shapes all;
  Strings strings;  // sometimes thousands: sort once
  strings.values.emplace();
  for (const Value& value : values)
    if (value.is(Kind::String)) {
      strings.values->push_back(value.text.view());
    } else {
      unite(all, of_constant(value));
    }
  sort(*strings.values, [](std::string_view x, std::string_view y) { return x < y; });
  strings.values->erase(std::unique(strings.values->begin(), strings.values->end()), strings.values->end());
  if (!strings.values->empty()) all.strings.push_back(static_cast<Strings&&>(strings));
  return all;
}

Shapes Evaluator::anything() const {
  Shapes all{.null = true, .no = true, .yes = true};
  all.numbers.emplace_back(), all.strings.emplace_back(), all.arrays.emplace_back();
  all.objects.push_back(any_object());
  return all;
}

bool Evaluator::spend(uint32_t work) {
  if (work_ > MAX_WORK) return false;
  if ((work_ += work) <= MAX_WORK) return true;
  looking_ = false;
  refuse(*current_, "", "the schema takes too much work: too many combinations of its alternatives");
  return false;
}

void Evaluator::refuse(const Value& at, std::string_view keyword, std::string_view why) {
  gave_up_ |= looking_;
  if (looking_) return;
  Text pointer = json::pointer_to(root_, at);
  if (!keyword.empty()) json::add_step(pointer, keyword);
  for (const Problem& problem : report_.problems)
    if (problem.pointer.view() == pointer.view() && problem.message.view() == why) return;
  report_.problems.push_back({static_cast<Text&&>(pointer), Text(keyword), Text(why)});
}

bool Evaluator::may_drop(const Value& schema, std::string_view keyword, std::string_view why) {
  if (!options_.lenient) return refuse(schema, keyword, why), false;
  return warn(schema, keyword, why), true;
}

void Evaluator::not_enforced(const Value& schema, std::string_view keyword, std::string_view why) {
  if (options_.strict_schema) return refuse(schema, keyword, why);
  warn(schema, keyword, why);
}

void Evaluator::warn(const Value& schema, std::string_view keyword, std::string_view why) {
  if (report_.warnings.size() >= Report::MAX_WARNINGS) return;
  Text pointer = json::pointer_to(root_, schema);
  json::add_step(pointer, keyword);
  for (const Problem& warning : report_.warnings)
    if (warning.pointer.view() == pointer.view() && warning.message.view() == why) return;
  report_.warnings.push_back({static_cast<Text&&>(pointer), Text(keyword), Text(why)});
}

void unite(Shapes& shapes, Shapes other) {
  shapes.null |= other.null, shapes.no |= other.no, shapes.yes |= other.yes;
  auto move_all = [](auto& to, auto& from) {
    for (auto& element : from) to.push_back(static_cast<std::remove_reference_t<decltype(element)>&&>(element));
  };
  // Lists of values are merged.
  for (Strings& strings : other.strings) {
    auto same = std::ranges::find_if(shapes.strings, [](const Strings& s) { return s.values.has_value(); });
    if (!strings.values || same == shapes.strings.end()) {
      shapes.strings.push_back(static_cast<Strings&&>(strings));
      continue;
    }
    std::vector<std::string_view>& values = *same->values;
    values.insert(values.end(), strings.values->begin(), strings.values->end());
    sort(values, [](std::string_view x, std::string_view y) { return x < y; });
    values.erase(std::unique(values.begin(), values.end()), values.end());
  }
  for (Numbers& numbers : other.numbers) {
    auto same = std::ranges::find_if(shapes.numbers, [](const Numbers& n) { return n.values.has_value(); });
    if (!numbers.values || same == shapes.numbers.end()) {
      shapes.numbers.push_back(static_cast<Numbers&&>(numbers));
    } else {
      same->values->insert(same->values->end(), numbers.values->begin(), numbers.values->end());
    }
  }
  move_all(shapes.arrays, other.arrays);
  move_all(shapes.objects, other.objects);
}

}  // namespace aici::schema
