#include "value.hpp"

namespace jsctrl {

std::optional<aici::Text> to_text(JSContext* ctx, JSValueConst value) {
  size_t len = 0;
  const char* chars = JS_ToCStringLen(ctx, &len, value);
  if (!chars) return std::nullopt;
  aici::Text text;
  for (size_t i = 0, start = 0; i <= len; i++) {
    // The interpreter writes half a pair as three bytes; valid UTF-8 never contains the first two.
    bool is_half = i + 2 < len && chars[i] == '\xED' && static_cast<unsigned char>(chars[i + 1]) >= 0xA0;
    if (!is_half && i < len) continue;
    text << std::string_view(chars + start, i - start);
    if (is_half) text << "\uFFFD", i += 2, start = i + 1;
  }
  JS_FreeCString(ctx, chars);
  return text;
}

}  // namespace jsctrl
