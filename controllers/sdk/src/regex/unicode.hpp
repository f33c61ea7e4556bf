// Unicode's properties of code points: general categories, scripts, case.
#pragma once
#include <optional>
#include <string_view>

#include "aici/regex/code_points.hpp"

namespace aici::regex {

// The set of a name in \p{name}: a general category ("L", "Lu", "LC"), a script ("Greek", "Grek"), "Any", "ASCII" or
// "Assigned"; or "gc=" or "sc=" (also in words) before a name. Case, spaces, - and _ do not matter. nullopt for any
// other name.
std::optional<CodePoints> unicode_property(std::string_view name);

// The set with all code points that match a member of `set` in another case, as in Python's `re`: simple folding, and i
// is one letter with the dotless and the dotted i.
CodePoints unicode_either_case(const CodePoints& set);

}  // namespace aici::regex
