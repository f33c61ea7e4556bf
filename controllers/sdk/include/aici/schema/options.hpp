// The options of a schema, as JSON.
#pragma once
#include <string_view>

#include "aici/json_value.hpp"
#include "aici/schema/problem.hpp"

namespace aici::schema {

inline constexpr std::string_view OPTIONS_HELP =
    "\"whitespace\" is compact, none, spaced or flexible, \"lenient\" and \"strict_schema\" are true or false, \"objects\" is closed "
    "or open, \"property_order\" declared or any";

// Returns false for an unknown key or a wrong value.
bool read_option(std::string_view key, const json::Value& value, Options& options);

}  // namespace aici::schema
