#include "aici/schema/evaluator.hpp"
#include "aici/schema/formats.hpp"

// The keyword `format`. A known format counts for the types that it speaks of, unless a `pattern` says more exactly what
// is wanted.
namespace aici::schema {

using json::Value;
using Kind = Value::Kind;

Evaluator::FormatLimits Evaluator::own_format(const Value& schema, bool has_numbers, bool has_strings) {
  const Value* format = schema.find("format");
  if (!format) return {};
  if (!format->is(Kind::String)) return refuse(schema, "format", "must be a string"), FormatLimits();
  FormatLimits limits;
  const NumberFormat* of_numbers = number_format(format->text);
  const StringFormat* of_strings = string_format(format->text);
  if (of_numbers && has_numbers) limits.numbers = numbers_of(*of_numbers);
  if (of_strings && has_strings) limits.strings = strings_of(*of_strings, strings_, exprs_);
  bool speaks = (of_numbers && has_numbers) || (of_strings && has_strings);
  auto warn_that = [&](std::string_view why) { not_enforced(schema, "format", Text("the format ") << format->text << why); };
  if (!of_numbers && !of_strings) {
    warn_that(" is not known");
  } else if (!speaks) {
    warn_that(of_strings ? " speaks of strings, which `type` excludes" : " speaks of numbers, which `type` excludes");
  } else if (limits.strings.is_limited() && schema.find("pattern")) {
    warn_that(" is beside a pattern, which counts alone");
    limits.strings = {};
  }
  return limits;
}

}  // namespace aici::schema
