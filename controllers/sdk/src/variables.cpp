#include "aici/variables.hpp"

#include "aici/host.hpp"
#include "aici/json.hpp"

namespace aici {
namespace {

std::vector<char> command(std::string_view json) {
  auto pointer = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(json.data()));
  return read_blob(aici_host_storage_cmd(pointer, static_cast<uint32_t>(json.size())));
}

Text to_hex(std::string_view bytes) {
  static constexpr char HEX[] = "0123456789abcdef";
  Text out;
  for (char c : bytes) out << HEX[static_cast<unsigned char>(c) >> 4] << HEX[c & 15];
  return out;
}

unsigned digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A' + 10);
  fail("the host's answer holds a value that is not hexadecimal");
}

Text from_hex(std::string_view hex) {
  Text out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) out << static_cast<char>(digit(hex[i]) << 4 | digit(hex[i + 1]));
  return out;
}

void write(std::string_view name, std::string_view value, std::string_view op) {
  Text json("{\"WriteVar\":{\"name\":");
  json << json::quoted(name) << ",\"value\":\"" << to_hex(value) << "\",\"op\":\"" << op << "\",\"when_version_is\":null}}";
  std::vector<char> answer = command(json.view());
  std::string_view text(answer.data(), answer.size());
  if (!json::get(text, "WriteVar")) fail((Text("the host did not write a variable: ") << text).view());
}

}  // namespace

std::optional<Text> get_variable(std::string_view name) {
  Text json("{\"ReadVar\":{\"name\":");
  std::vector<char> answer = command((json << json::quoted(name) << "}}").view());
  std::optional<std::string_view> found = json::get({answer.data(), answer.size()}, "ReadVar");
  if (!found) return std::nullopt;
  std::optional<std::string_view> value = json::get(*found, "value");
  if (!value) fail("the host's answer lacks a value");
  return from_hex(json::plain_string(*value));
}

void set_variable(std::string_view name, std::string_view value) { write(name, value, "Set"); }
void append_variable(std::string_view name, std::string_view value) { write(name, value, "Append"); }

}  // namespace aici
