// Names of types.
#pragma once
#include <string_view>

namespace aici::schema {

// The name of the type in JSON Schema, or "any", for a name in any case of JSON Schema, Python or a programming language
// like it: "STRING", "dict" and "float" are string, object and number. Empty for other names.
std::string_view usual_type_name(std::string_view name);

}  // namespace aici::schema
