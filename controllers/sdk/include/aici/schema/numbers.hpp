// Sets of JSON numbers, and the texts that stand for their members.
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

// All conditions together. `values`, when there is one, is the list to choose from.
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

// False when nothing is in both, as far as bounds and values show it.
bool intersect(const Numbers& x, const Numbers& y, Numbers& both);

// The numbers outside, as a union.
std::vector<Numbers> complement(const Numbers& numbers);

// Integers are written without fraction and exponent; other numbers with an exponent only where nothing bounds them.
// A minus sign comes only where a number below zero is allowed. nullopt: multiples that no automaton of ours can count.
std::optional<regex::ExprId> language(const Numbers& numbers, regex::Exprs& exprs);

}  // namespace aici::schema
