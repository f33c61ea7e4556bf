#include "modules.hpp"

#include "value.hpp"

#pragma clang diagnostic ignored "-Wc23-extensions"

namespace jsctrl {

namespace {

constexpr char LIBRARY[] = {
#embed "aici.js"
    , 0};
constexpr char ORIGINAL[] = {
#embed "_aici.js"
    , 0};
constexpr char HELPERS[] = {
#embed "helpers.js"
    , 0};

char* normalize(JSContext* ctx, const char*, const char* name, void*) { return js_strdup(ctx, name); }

template <size_t N>
JSModuleDef* compile(JSContext* ctx, const char (&source)[N], const char* name) {
  Value compiled(ctx, JS_Eval(ctx, source, N - 1, name, JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY));
  return compiled.is_exception() ? nullptr : static_cast<JSModuleDef*>(JS_VALUE_GET_PTR(compiled.get()));
}

// "aici" itself is loaded already.
JSModuleDef* load(JSContext* ctx, const char* name, void*) {
  std::string_view wanted(name);
  if (wanted == "aici/native") return add_natives(ctx);
  if (wanted == "aici/helpers") return compile(ctx, HELPERS, name);
  if (wanted == "_aici") return compile(ctx, ORIGINAL, name);
  JS_ThrowReferenceError(ctx, "there is no module '%s': scripts can import 'aici' and 'aici/helpers'", name);
  return nullptr;
}

}  // namespace

std::string_view library_source() { return {LIBRARY, sizeof(LIBRARY) - 1}; }

void use_modules(JSRuntime* runtime) { JS_SetModuleLoaderFunc(runtime, normalize, load, nullptr); }

}  // namespace jsctrl
