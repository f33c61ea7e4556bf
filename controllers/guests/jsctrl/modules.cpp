#include "modules.hpp"

#include <cstring>

#include "value.hpp"

#pragma clang diagnostic ignored "-Wc23-extensions"

namespace jsctrl {

namespace {

constexpr char LIBRARY[] = {
#embed "aici.js"
    , 0};
constexpr char HELPERS[] = {
#embed "helpers.js"
    , 0};

char* normalize(JSContext* ctx, const char*, const char* name, void*) { return js_strdup(ctx, name); }

JSModuleDef* load(JSContext* ctx, const char* name, void*) {
  if (strcmp(name, "_aici") == 0) return add_natives(ctx);
  if (strcmp(name, "aici/helpers") != 0) {
    JS_ThrowReferenceError(ctx, "there is no module '%s': scripts can import 'aici' and 'aici/helpers'", name);
    return nullptr;
  }
  Value compiled(ctx, JS_Eval(ctx, HELPERS, sizeof(HELPERS) - 1, name, JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY));
  if (compiled.is_exception()) return nullptr;
  return static_cast<JSModuleDef*>(JS_VALUE_GET_PTR(compiled.get()));
}

}  // namespace

std::string_view library_source() { return {LIBRARY, sizeof(LIBRARY) - 1}; }

void use_modules(JSRuntime* runtime) { JS_SetModuleLoaderFunc(runtime, normalize, load, nullptr); }

}  // namespace jsctrl
