#include "aici/schema/type_names.hpp"

#include <utility>

namespace aici::schema {
namespace {

constexpr std::pair<std::string_view, std::string_view> NAMES[] = {
    {"null", "null"},      {"none", "null"},      {"boolean", "boolean"}, {"bool", "boolean"},   {"integer", "integer"},
    {"int", "integer"},    {"long", "integer"},   {"number", "number"},   {"float", "number"},   {"double", "number"},
    {"string", "string"},  {"str", "string"},     {"array", "array"},     {"list", "array"},     {"tuple", "array"},
    {"set", "array"},      {"object", "object"},  {"dict", "object"},     {"any", "any"}};

bool equal_but_for_case(std::string_view name, std::string_view lower) {
  if (name.size() != lower.size()) return false;
  for (size_t i = 0; i < name.size(); i++)
    if ((name[i] >= 'A' && name[i] <= 'Z' ? name[i] + 32 : name[i]) != lower[i]) return false;
  return true;
}

}  // namespace

std::string_view usual_type_name(std::string_view name) {
  for (auto [other, usual] : NAMES)
    if (equal_but_for_case(name, other)) return usual;
  return "";
}

}  // namespace aici::schema
