// The meaning of a schema: a set of JSON values, by type. Unions are lists; intersections are computed at once.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "aici/json_value.hpp"
#include "aici/schema/numbers.hpp"
#include "aici/schema/strings.hpp"

namespace aici::schema {

// A conjunction of schemas, for an item or a property. Evaluated on demand, since schemas recur.
using ConjId = uint32_t;
inline constexpr ConjId ANYTHING = 0;
inline constexpr ConjId NEVER = 1;

// Of the items from `from` on, at least `min` and at most `max` are `item`.
struct Contains {
  ConjId item;
  uint32_t from, min, max;
};

// What keywords have evaluated so far, for unevaluatedItems and unevaluatedProperties: the first `len` items and all
// items that are one of `values`; and the keys in `names` and in the language `keys`.
struct EvaluatedItems {
  uint32_t len = 0;
  std::vector<ConjId> values{};
};
struct EvaluatedKeys {
  std::vector<std::string_view> names{};
  regex::ExprId keys = regex::NOTHING;
};

struct Array {
  std::vector<ConjId> prefix{};  // item i is prefix[i], further items are `rest`
  ConjId rest = ANYTHING;
  uint32_t min = 0, max = regex::UNBOUNDED;
  std::vector<Contains> contains{};
  const json::Value* unique = nullptr;   // the schema that requires different items
  const json::Value* repeats = nullptr;  // the schema whose negation requires that an item comes twice
  EvaluatedItems evaluated{};

  ConjId item(size_t index) const { return index < prefix.size() ? prefix[index] : rest; }
};

struct Property {
  std::string_view name;
  ConjId value = ANYTHING;  // NEVER: must be absent
  bool required = false;
  // Declared: by `properties`, whose order is kept. Late: by `required` or a dependency, after these. Free: by a negation
  // alone, which says nothing of an order: in any order with further keys.
  enum class Place : uint8_t { Free, Late, Declared };
  Place place = Place::Late;
};

// Other keys, by their language (between the quotes, in all spellings).
struct Region {
  regex::ExprId keys;
  ConjId value;
};

// Properties in the order of writing. A region describes keys that are not named properties; the languages of two
// regions are disjoint; a key in no region is not allowed.
struct Object {
  std::vector<Property> properties{};
  std::vector<Region> regions{};
  uint32_t min = 0, max = regex::UNBOUNDED;  // keys
  std::vector<Region> some{};                // for each: at least one key, named or not, is such a key, with such a value
  EvaluatedKeys evaluated{};
  bool declares = false;  // some schema of it has `properties`
  bool speaks = false;    // some schema of it speaks of keys beyond its properties
  bool keeps_order = false;  // in the order of the schema, whatever Options::property_order says
};

struct Shapes {
  bool null = false, no = false, yes = false;
  std::vector<Numbers> numbers{};
  std::vector<Strings> strings{};
  std::vector<Array> arrays{};
  std::vector<Object> objects{};

  bool empty() const {
    return !null && !no && !yes && numbers.empty() && strings.empty() && arrays.empty() && objects.empty();
  }
  size_t size() const { return numbers.size() + strings.size() + arrays.size() + objects.size(); }
};

// A union of values of any type.
void unite(Shapes& shapes, Shapes other);

}  // namespace aici::schema
