// Variables: byte strings with names, shared by all forks of a request. They outlive no request.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "aici/text.hpp"

namespace aici {

// nullopt when the variable was never written.
std::optional<Text> get_variable(std::string_view name);
void set_variable(std::string_view name, std::string_view value);
void append_variable(std::string_view name, std::string_view value);

}  // namespace aici
