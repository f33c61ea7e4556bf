// Sets of JSON numbers, and the texts of their members.
#pragma once
#include <optional>
#include <vector>

#include "aici/regex/expr.hpp"
#include "aici/schema/decimal.hpp"

namespace aici::schema {

struct Bound {
  Decimal value;
  bool exclusive = false;
};

// All conditions must hold. `values`, if given, is the list of allowed values.
struct Numbers {
  enum class Whole : uint8_t { Either, Only, Never };
  struct Value {
    Decimal number;
    std::string_view written;  // as in the schema
  };

  Whole whole = Whole::Either;
  std::optional<Bound> min{}, max{};
  std::vector<Decimal> multiples{}, not_multiples{}, excluded{};
  std::optional<std::vector<Value>> values{};

  bool has(const Decimal& number) const;  // values not considered
};

// Returns false if bounds and values show that the intersection is empty.
bool intersect(const Numbers& x, const Numbers& y, Numbers& both);

// The complement, as a union.
std::vector<Numbers> complement(const Numbers& numbers);

// Integers are written without fraction and exponent; other numbers have an exponent only if nothing bounds them. A
// minus sign comes only if a number below zero is allowed. Numbers without bounds stay below 10^308: a double holds them.
regex::ExprId language(const Numbers& numbers, regex::Exprs& exprs);

// Every number in one spelling: no exponent, no zero at the end of a fraction, no -0.
regex::ExprId plain_numbers(regex::Exprs& exprs);

}  // namespace aici::schema
