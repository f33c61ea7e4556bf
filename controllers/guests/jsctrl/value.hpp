// Values of the interpreter in C++.
#pragma once
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/host.hpp"
#include "aici/text.hpp"
#include "quickjs.h"

namespace jsctrl {

// Owns one reference.
class Value {
 public:
  Value() = default;
  Value(JSContext* ctx, JSValue value) : ctx_(ctx), value_(value) {}
  Value(Value&& other) noexcept : ctx_(other.ctx_), value_(std::exchange(other.value_, JS_UNDEFINED)) {}
  Value& operator=(Value&& other) noexcept {
    std::swap(ctx_, other.ctx_);
    std::swap(value_, other.value_);
    return *this;
  }
  ~Value() {
    if (ctx_) JS_FreeValue(ctx_, value_);
  }

  JSValueConst get() const { return value_; }
  JSValue release() { return std::exchange(value_, JS_UNDEFINED); }
  bool is_exception() const { return JS_IsException(value_); }

 private:
  JSContext* ctx_ = nullptr;
  JSValue value_ = JS_UNDEFINED;
};

// As UTF-8; nullopt, with a pending exception, if the value has no string form. Halves of surrogate pairs, which are
// not characters, become U+FFFD.
std::optional<aici::Text> to_text(JSContext* ctx, JSValueConst value);

// Of a string, or the bytes of a Uint8Array.
inline std::optional<aici::Text> to_bytes(JSContext* ctx, JSValueConst value) {
  if (JS_GetTypedArrayType(value) < 0) return to_text(ctx, value);
  size_t size = 0;
  const uint8_t* bytes = JS_GetUint8Array(ctx, &size, value);
  if (!bytes && size == 0 && JS_HasException(ctx)) return std::nullopt;
  return aici::Text(std::string_view(reinterpret_cast<const char*>(bytes), size));
}

inline Value from_text(JSContext* ctx, std::string_view text) {
  return Value(ctx, JS_NewStringLen(ctx, text.data(), text.size()));
}

inline Value from_bytes(JSContext* ctx, std::string_view bytes) {
  return Value(ctx, JS_NewUint8ArrayCopy(ctx, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
}

inline Value from_tokens(JSContext* ctx, aici::Tokens tokens) {
  Value array(ctx, JS_NewArray(ctx));
  for (size_t i = 0; i < tokens.size(); i++)
    JS_SetPropertyUint32(ctx, array.get(), static_cast<uint32_t>(i), JS_NewUint32(ctx, tokens[i]));
  return array;
}

// The elements of an array; nullopt, with a pending exception, if the value is no array or `convert` returns nullopt.
template <typename T, typename Convert>
std::optional<std::vector<T>> to_vector(JSContext* ctx, JSValueConst array, const char* what, Convert convert) {
  if (!JS_IsArray(array)) {
    JS_ThrowTypeError(ctx, "%s must be an array", what);
    return std::nullopt;
  }
  int64_t len = 0;
  if (JS_GetLength(ctx, array, &len) < 0) return std::nullopt;
  std::vector<T> out;
  for (uint32_t i = 0; i < len; i++) {
    Value element(ctx, JS_GetPropertyUint32(ctx, array, i));
    std::optional<T> converted = convert(ctx, element.get());
    if (!converted) return std::nullopt;
    out.push_back(static_cast<T&&>(*converted));
  }
  return out;
}

inline std::optional<std::vector<aici::Text>> to_texts(JSContext* ctx, JSValueConst array, const char* what) {
  return to_vector<aici::Text>(ctx, array, what, to_text);
}

}  // namespace jsctrl
