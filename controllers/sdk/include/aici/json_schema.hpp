// JSON Schema as a constraint: the bytes generated are a JSON text that the schema allows.
#pragma once
#include <optional>

#include "aici/json_value.hpp"
#include "aici/regex.hpp"
#include "aici/schema/problem.hpp"

namespace aici {

// The automaton of a schema ; nullopt when report.problems says why not.
std::optional<RegexRecognizer> compile_json_schema(const json::Value& schema, const schema::Options& options, schema::Report& report);

}  // namespace aici
