// The SDK outside Wasm, for tests under sanitizers and for fuzzing. The answers of the runtime are given here.
#pragma once
#include <exception>
#include <string>
#include <string_view>

namespace aici::native {

// Thrown by fail() here: the guest would have ended with this message.
struct Failed : std::exception {
  explicit Failed(std::string_view why) : message(why) {}
  const char* what() const noexcept override { return message.c_str(); }
  std::string message;
};

// The argument returned by module_arg().
void set_module_arg(std::string_view arg);

// Report a broken invariant and abort, which sanitizers and fuzzers take for a finding.
[[noreturn]] void broken(std::string_view what);

inline void require(bool holds, std::string_view what) {
  if (!holds) broken(what);
}

}  // namespace aici::native
