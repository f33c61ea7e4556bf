#include "aici/schema/options.hpp"

#include <initializer_list>
#include <utility>

namespace aici::schema {
namespace {

using json::Value;

template <typename T>
using Words = std::initializer_list<std::pair<std::string_view, T>>;

template <typename T>
bool read(const Value& value, Words<T> words, T& out) {
  for (auto [word, meaning] : words)
    if (value.is(Value::Kind::String) && value.text.view() == word) return out = meaning, true;
  return false;
}

bool read(const Value& value, bool& out) {
  out = value.is(Value::Kind::True);
  return value.is_boolean();
}

}  // namespace

bool read_option(std::string_view key, const Value& value, Options& options) {
  if (key == "whitespace")
    return read(value,
                {{"compact", Space::Compact}, {"none", Space::None}, {"spaced", Space::Spaced}, {"flexible", Space::Flexible}},
                options.space);
  if (key == "lenient") return read(value, options.lenient);
  if (key == "strict_schema") return read(value, options.strict_schema);
  if (key == "objects") return read(value, {{"closed", Objects::Closed}, {"open", Objects::Open}}, options.objects);
  if (key == "property_order")
    return read(value, {{"declared", PropertyOrder::Declared}, {"any", PropertyOrder::Any}}, options.property_order);
  return false;
}

}  // namespace aici::schema
