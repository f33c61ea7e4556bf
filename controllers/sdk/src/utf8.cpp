#include "aici/utf8.hpp"

namespace aici {

std::optional<uint32_t> next_code_point(std::string_view text, size_t& at) {
  static constexpr uint32_t LEAST[] = {0, 0x80, 0x800, 0x10000};
  if (at >= text.size()) return std::nullopt;
  auto lead = static_cast<uint8_t>(text[at]);
  size_t trailing = lead < 0x80 ? 0 : lead >= 0xC2 && lead < 0xE0 ? 1 : lead >= 0xE0 && lead < 0xF0 ? 2 : lead >= 0xF0 && lead < 0xF5 ? 3 : 4;
  if (trailing == 4 || trailing >= text.size() - at) return std::nullopt;
  uint32_t value = trailing == 0 ? lead : lead & (0x3Fu >> trailing);
  for (size_t i = 1; i <= trailing; i++) {
    auto byte = static_cast<uint8_t>(text[at + i]);
    if ((byte & 0xC0) != 0x80) return std::nullopt;
    value = value << 6 | (byte & 0x3F);
  }
  if (value < LEAST[trailing] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return std::nullopt;
  at += trailing + 1;
  return value;
}

std::optional<size_t> decode_utf8(std::string_view text, std::vector<uint32_t>& code_points) {
  for (size_t at = 0; at < text.size();) {
    std::optional<uint32_t> value = next_code_point(text, at);
    if (!value) return at;
    code_points.push_back(*value);
  }
  return std::nullopt;
}

void encode_utf8(uint32_t c, Text& out) {
  auto put = [&out](uint32_t byte) { out << static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      put(0xE0 | c >> 12);
    } else {
      put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F));
    }
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

}  // namespace aici
