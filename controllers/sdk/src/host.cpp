#include "aici/host.hpp"

#include <cstring>

namespace {

struct IoVec {
  const char* data;
  uint32_t len;
};

// The one WASI function that guests use: the ABI has no other way to write the log.
extern "C" __attribute__((import_module("wasi_snapshot_preview1"), import_name("fd_write"))) int32_t aici_fd_write(
    int32_t fd, const IoVec* vectors, int32_t num_vectors, uint32_t* written);

uint32_t address(const void* pointer) { return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pointer)); }

}  // namespace

namespace aici {

void print(std::string_view text) {
  IoVec vector{text.data(), static_cast<uint32_t>(text.size())};
  uint32_t written = 0;
  aici_fd_write(1, &vector, 1, &written);
}

void fail(std::string_view why) {
  print(why);
  print("\n");
  aici_host_stop();
  __builtin_trap();
}

std::vector<char> read_blob(uint32_t blob) {
  // Most arguments are short, and a call of the host costs more than a copy.
  char start[256];
  uint32_t size = aici_host_read_blob(blob, address(start), sizeof(start));
  if (size <= sizeof(start)) return {start, start + size};
  std::vector<char> bytes(size);
  aici_host_read_blob(blob, address(bytes.data()), size);
  return bytes;
}

std::vector<char> module_arg() { return read_blob(aici_host_module_arg()); }

std::vector<TokenId> tokenize(std::string_view text) {
  std::vector<char> bytes = read_blob(aici_host_tokenize(address(text.data()), static_cast<uint32_t>(text.size())));
  std::vector<TokenId> tokens(bytes.size() / sizeof(TokenId));
  if (!tokens.empty()) memcpy(tokens.data(), bytes.data(), tokens.size() * sizeof(TokenId));
  return tokens;
}

TokenId eos_token() { return aici_host_eos_token(); }
uint32_t self_seq_id() { return aici_host_self_seq_id(); }

}  // namespace aici
