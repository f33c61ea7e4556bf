// From shapes to one expression over bytes: the JSON texts of the values. Arrays and objects are rules, so schemas may
// recur.
#pragma once
#include <vector>

#include "aici/schema/evaluator.hpp"

namespace aici::schema {

inline constexpr std::string_view REPEATS_LEFT_OUT =
    "a negation (not, oneOf, if) leaves out arrays that only repeat an item, beside prefixItems or contains";

class Lowering {
 public:
  Lowering(Evaluator& evaluator, regex::Exprs& exprs, StringLanguages& strings, const Options& options);

  // The texts allowed by `conj`. Everything that `conj` refers to is lowered too.
  regex::ExprId texts(ConjId conj);

 private:
  static constexpr size_t MAX_RULES = 4096;        // of one array
  static constexpr size_t MAX_COUNTED = 20000;     // of one object: properties times counts
  static constexpr size_t MAX_UNIQUE_VALUES = 10;  // every subset is a state

  struct Rule {
    ConjId conj;
    regex::ExprId name;
    bool plain;  // arrays and objects alone, see plain_
  };
  // An item of an array: a value, and the `contains` for which the value counts.
  struct Choice {
    ConjId value;
    uint32_t counts;  // bit i: contains[i]
  };

  regex::ExprId value(ConjId conj);
  regex::ExprId plain_composite(ConjId conj);
  void check(const json::Value& schema);
  regex::ExprId scalars(const Shapes& shapes);
  regex::ExprId array(const Array& array, const json::Value& schema);
  regex::ExprId counted_array(const Array& array, const json::Value& schema);
  std::vector<Choice> choices(const Array& array, uint32_t position, const std::vector<uint32_t>& counts);

  // unique_lowering.cpp
  regex::ExprId unique_array(const Array& array);
  regex::ExprId remembering_array(const Array& array);
  regex::ExprId repeating_array(const Array& array);
  regex::ExprId counted_unique_array(const Array& array);
  regex::ExprId different_items(regex::Exprs::UniqueItems items, const Array& array);
  std::vector<uint32_t> counted_values(const Array& array, const std::vector<Text>& all);
  regex::ExprId plain_item(ConjId conj);
  bool list_values(ConjId conj, std::vector<Text>& out);

  // object_lowering.cpp
  struct Members;  // of one object
  regex::ExprId object(Object object, const json::Value& schema);
  regex::ExprId object_with(const Object& object, const std::vector<Region>& wanted, const json::Value& schema);
  bool is_closed(const Object& object) const;
  void add_others(const Object& object, const std::vector<Region>& regions, bool wanted, std::vector<regex::EntryList::Other>& others);
  regex::ExprId as_declared(const Object& object, Members& members, const json::Value& schema);
  std::vector<regex::ExprId> in_any_order_after(const Object& object, const Members& members, uint32_t most);
  regex::ExprId colon_and(regex::ExprId value) { return exprs_.concat(colon_, value); }

  regex::ExprId bytes(std::string_view text);
  regex::ExprId join(regex::ExprId x, regex::ExprId y) { return exprs_.concat(x, y); }
  regex::ExprId join(regex::ExprId x, regex::ExprId y, regex::ExprId z) { return join(x, join(y, z)); }

  const Options& options_;
  Evaluator& evaluator_;
  regex::Exprs& exprs_;
  StringLanguages& strings_;
  bool plain_ = false;  // inside of a unique item: strings and numbers have one spelling each
  regex::ExprId space_, comma_, colon_;  // with optional white space
  std::vector<regex::ExprId> known_, known_plain_, known_composite_;  // (conjunctions,) UNKNOWN if never asked for
  std::vector<Rule> to_do_;
  bool failed_ = false;
};

}  // namespace aici::schema
