// The modules available to scripts.
#pragma once
#include <string_view>

#include "quickjs.h"

namespace jsctrl {

// The source of module "aici", followed by a 0.
std::string_view library_source();

void use_modules(JSRuntime* runtime);

// The module "aici/native": the functions used by the library.
JSModuleDef* add_natives(JSContext* ctx);

}  // namespace jsctrl
