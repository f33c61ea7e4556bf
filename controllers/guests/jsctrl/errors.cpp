#include "errors.hpp"

namespace jsctrl {

namespace {

// Without the lines of the library and of the interpreter, which the author of the script has not written.
void append_frames(aici::Text& out, std::string_view stack) {
  while (!stack.empty()) {
    size_t end = stack.find('\n');
    std::string_view line = stack.substr(0, end);
    stack.remove_prefix(end == std::string_view::npos ? stack.size() : end + 1);
    if (line.find("main:") != std::string_view::npos) out << '\n' << line;
  }
}

}  // namespace

aici::Text describe_error(JSContext* ctx, JSValueConst error) {
  aici::Text out("Exception: ");
  std::optional<aici::Text> said = to_text(ctx, error);
  if (!said) JS_FreeValue(ctx, JS_GetException(ctx));
  out << (said ? said->view() : "a value that cannot be shown");
  if (!JS_IsError(error)) return out << " (thrown; an Error would say from where)";
  Value stack(ctx, JS_GetPropertyStr(ctx, error, "stack"));
  if (!JS_IsString(stack.get())) return out;
  if (std::optional<aici::Text> lines = to_text(ctx, stack.get())) append_frames(out, *lines);
  return out;
}

JSValue throw_error(JSContext* ctx, std::string_view message) {
  JS_ThrowTypeError(ctx, "%s", "");  // which truncates the message and notes the position in the script
  JSValue error = JS_GetException(ctx);
  Value text = from_text(ctx, message);
  JS_DefinePropertyValueStr(ctx, error, "message", text.release(), JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE);
  return JS_Throw(ctx, error);
}

void fail_with_exception(JSContext* ctx) {
  Value error(ctx, JS_GetException(ctx));
  aici::fail(describe_error(ctx, error.get()));
}

}  // namespace jsctrl
