// A terminal whose texts are the JSON texts of a schema: %json {...} in a rule.
#pragma once
#include <string_view>

#include "aici/regex/expr.hpp"
#include "aici/schema/problem.hpp"

namespace aici::grammar {

// NOTHING, with report.problems, for a schema that is refused. One space follows : and , as models write JSON.
regex::ExprId json_expr(std::string_view schema, regex::Exprs& exprs, schema::Report& report);

}  // namespace aici::grammar
