// What a schema means: a set of JSON values, by type. Unions are lists; intersections are taken when they are made.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "aici/json_value.hpp"
#include "aici/schema/numbers.hpp"
#include "aici/schema/strings.hpp"

namespace aici::schema {

// A conjunction of schemas: what an item or a property must be. Evaluated when it is needed, since schemas recur.
using ConjId = uint32_t;
inline constexpr ConjId ANYTHING = 0;
inline constexpr ConjId NEVER = 1;

// At least `min`, at most `max` of the items from `from` on are `item`.
struct Contains {
  ConjId item;
  uint32_t from, min, max;
};

struct Array {
  std::vector<ConjId> prefix{};  // item i is prefix[i], those beyond are `rest`
  ConjId rest = ANYTHING;
  uint32_t min = 0, max = regex::UNBOUNDED;
  std::vector<Contains> contains{};
  const json::Value* unique = nullptr;  // the schema that wants different items

  ConjId item(size_t index) const { return index < prefix.size() ? prefix[index] : rest; }
};

struct Property {
  std::string_view name;
  ConjId value = ANYTHING;  // NEVER: must be absent
  bool required = false;
  bool declared = false;  // by `properties`, whose order is kept; others come after
};

// Other keys, by their language (between the quotes, all spellings).
struct Region {
  regex::ExprId keys;
  ConjId value;
};

// Properties in the order in which they are written. A region speaks of the keys that are none of them; the languages of
// two regions have no key in common; a key in none is not allowed.
struct Object {
  std::vector<Property> properties{};
  std::vector<Region> regions{};
  uint32_t min = 0, max = regex::UNBOUNDED;  // keys
  std::vector<Region> some{};                // of each: at least one key, named or not, is such a key with such a value
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

// A union of values, whatever they are.
void unite(Shapes& shapes, Shapes other);

}  // namespace aici::schema
