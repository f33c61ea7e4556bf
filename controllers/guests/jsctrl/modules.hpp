// The modules that scripts can import.
#pragma once
#include <string_view>

#include "quickjs.h"

namespace jsctrl {

// The module "aici"; a 0 follows it.
std::string_view library_source();

void use_modules(JSRuntime* runtime);

// The module "aici/native": what the library is made of.
JSModuleDef* add_natives(JSContext* ctx);

}  // namespace jsctrl
