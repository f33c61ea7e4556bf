// What Unicode says of code points: general categories, scripts, case.
#pragma once
#include <optional>
#include <string_view>

#include "aici/regex/code_points.hpp"

namespace aici::regex {

// The set of a name as in \p{name}: a general category ("L", "Lu", "LC"), a script ("Greek", "Grek"), "Any", "ASCII" or
// "Assigned"; or "gc=" or "sc=" (also in words) before a name. Case, spaces, - and _ do not matter. nullopt for others.
std::optional<CodePoints> unicode_property(std::string_view name);

// With all code points that match those of `set` in another case, as Python's `re` has it: simple folding, and i is one
// letter with the dotless and the dotted one.
CodePoints unicode_either_case(const CodePoints& set);

}  // namespace aici::regex
