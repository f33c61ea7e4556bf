// Variables: named byte strings shared by all forks of a request, which end with the request.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "aici/text.hpp"

namespace aici {

// nullopt if the variable was never written.
std::optional<Text> get_variable(std::string_view name);
void set_variable(std::string_view name, std::string_view value);
void append_variable(std::string_view name, std::string_view value);

}  // namespace aici
