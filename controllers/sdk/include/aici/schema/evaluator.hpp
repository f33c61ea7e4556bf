// From schemas to shapes. Nothing recurs: items and properties stay conjunctions until needed.
#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "aici/schema/problem.hpp"
#include "aici/schema/references.hpp"
#include "aici/schema/shapes.hpp"

namespace aici::schema {

bool mentions(const json::Value& value, std::string_view keyword);

class Evaluator {
 public:
  // All arguments must outlive the evaluator; problems are added to `report`.
  Evaluator(const json::Value& root, regex::Exprs& exprs, StringLanguages& strings, const Options& options, Report& report);

  ConjId conj_of(const json::Value& schema);
  ConjId meet(ConjId x, ConjId y);
  // The complement of `conj`, as a union.
  std::vector<ConjId> outside(ConjId conj);

  // The address is stable. Empty if there is a problem.
  const Shapes& shapes(ConjId conj);

  // For messages: a conjunction that is some schema.
  const json::Value& schema_of(ConjId conj) const;

  // A known keyword that cannot be honoured. Refuse; or with Options::lenient warn, and then return `true`.
  bool may_drop(const json::Value& schema, std::string_view keyword, std::string_view why);
  // A part that constrains nothing. Warn; or with Options::strict_schema refuse.
  void not_enforced(const json::Value& schema, std::string_view keyword, std::string_view why);
  void warn(const json::Value& schema, std::string_view keyword, std::string_view why);
  void refuse(const json::Value& at, std::string_view keyword, std::string_view why);

 private:
  // A schema, or a value that must be matched exactly.
  struct Literal {
    const json::Value* at;
    bool constant, negated;
    uint32_t scope = 0;  // number in scopes_: the resources that the evaluation has passed through, if a keyword asks
    bool quiet = false;  // reached through negations alone: tells values apart, declares no keys
    bool operator==(const Literal&) const = default;
  };
  using LiteralId = uint32_t;  // 4 n; quiet 4 n + 1; negated 4 n + 2
  static bool is_negated(LiteralId literal) { return literal & 2; }

  static constexpr uint32_t MAX_DEPTH = 100;
  static constexpr size_t MAX_ALTERNATIVES = 100000;  // an alternative counts as 8, and each of its properties as 1
  static constexpr uint32_t MAX_WORK = 2000000;

  ConjId conj_of(Literal literal);
  uint32_t entered(uint32_t scope, const json::Value& schema);
  ConjId intern(std::vector<LiteralId> literals);
  ConjId quiet(ConjId conj);
  Shapes quiet(Shapes shapes);
  Shapes shapes_of(const Literal& literal);
  Shapes of_constant(const json::Value& value);
  Shapes of_constants(const std::vector<json::Value>& values);

  // schema_keywords.cpp
  Shapes of_schema(const json::Value& schema);
  void check_keywords(const json::Value& schema);
  void unknown_keyword(const json::Value& schema, std::string_view name);
  Shapes own_keywords(const json::Value& schema);
  uint32_t type_mask(const json::Value& schema);
  Numbers own_numbers(const json::Value& schema, uint32_t types);
  Strings own_strings(const json::Value& schema);
  // What `format` demands, for the types that the schema has; a warning where it demands nothing (schema_formats.cpp).
  struct FormatLimits {
    Numbers numbers{};
    Strings strings{};
  };
  FormatLimits own_format(const json::Value& schema, bool has_numbers, bool has_strings);
  Array own_array(const json::Value& schema);
  Object own_object(const json::Value& schema);
  bool says_required(const json::Value& property);
  void add_contains(const json::Value& schema, Array& array);
  const Decimal* number(const json::Value& schema, std::string_view keyword, Decimal& out);
  uint32_t count(const json::Value& schema, std::string_view keyword, uint32_t absent);
  const json::Value* list(const json::Value& schema, std::string_view keyword);
  const json::Value* map(const json::Value& schema, std::string_view keyword);
  regex::ExprId pattern(const json::Value& schema, std::string_view keyword, std::string_view pattern);
  regex::ExprId grammar(const json::Value& schema, const json::Value& text);

  // schema_applicators.cpp
  Shapes apply(const json::Value& schema, std::string_view keyword, const json::Value& value, Shapes shapes);
  Shapes exactly_one(const json::Value& schema, const json::Value& list);
  Shapes without(Shapes shapes, const Shapes& other);
  Shapes if_then_else(const json::Value& schema, const json::Value& condition);
  Shapes dependencies(const json::Value& value, Shapes shapes);

  // evaluated.cpp
  void mark_evaluated(const json::Value& schema, Array& array);
  void mark_evaluated(const json::Value& schema, Object& object);
  EvaluatedItems joined(const EvaluatedItems& x, const EvaluatedItems& y) const;
  EvaluatedKeys joined(const EvaluatedKeys& x, const EvaluatedKeys& y);
  Shapes both_composite(const Shapes& x, const Shapes& y);
  Shapes unevaluated(const json::Value& schema, Shapes shapes);
  Array unevaluated_items(const EvaluatedItems& evaluated, ConjId value);
  Object unevaluated_keys(const EvaluatedKeys& evaluated, ConjId value);

  // openapi.cpp
  bool is_nullable(const json::Value& schema, const json::Value& nullable);
  Shapes alternative(const json::Value& schema, const json::Value& part);
  json::Value tag_values(const json::Value& schema, const json::Value& discriminator, const json::Value& part);

  // schema_algebra.cpp
  Shapes intersect(const Shapes& x, const Shapes& y);
  Shapes complement(const Shapes& shapes);
  bool intersect(const Array& x, const Array& y, Array& both);
  bool intersect(const Object& x, const Object& y, Object& both);
  std::vector<Array> complement(const Array& array);
  std::vector<Object> complement(const Object& object);
  bool is_empty(const Shapes& shapes, int depth);
  bool is_empty(ConjId conj, int depth);
  bool disjoint(const Shapes& x, const Shapes& y);

  // object_shapes.cpp
  bool is_listed(ConjId conj) const;
  ConjId value_of(const Object& object, std::string_view name);
  Object any_object() const { return {.regions = {{strings_.any(), ANYTHING}}}; }
  void add_pattern(std::vector<Region>& regions, regex::ExprId& rest, regex::ExprId keys, ConjId value);
  void expand_some(Object object, std::vector<Object>& out);
  void keep_names(Object& object, regex::ExprId keys);

  Shapes anything() const;
  bool spend(uint32_t work);

  const json::Value& root_;
  regex::Exprs& exprs_;
  StringLanguages& strings_;
  const Options& options_;
  Report& report_;
  References references_;
  bool tracks_scope_;      // the document says $dynamicRef or $recursiveRef
  std::vector<std::vector<uint32_t>> scopes_{{}};
  uint32_t scope_ = 0;     // of the literal under evaluation
  bool tracks_evaluated_;  // the document says unevaluatedItems or unevaluatedProperties

  std::vector<Literal> literals_;
  std::vector<std::vector<LiteralId>> conjs_;
  regex::InternTable literal_table_, conj_table_;
  std::vector<std::unique_ptr<Shapes>> memo_;  // by conjunction
  std::vector<bool> under_way_;
  std::vector<std::unique_ptr<json::Value>> made_;  // schemas that are not in the document
  const json::Value* current_;  // the schema under evaluation
  uint32_t depth_ = 0, work_ = 0;
  // A mere test (is_empty) is given up if the test needs a running evaluation or would be refused: then nothing is
  // reported and nothing is cached.
  bool looking_ = false, gave_up_ = false;
};

}  // namespace aici::schema
