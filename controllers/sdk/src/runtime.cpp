// The C++ and WASI runtime of guests: allocation that reports failure, constructors that run exactly once, and stubs in
// place of WASI imports. So a guest imports only `env.aici_host_*` and, for its log, fd_write.
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "aici/host.hpp"
#include "aici/start.hpp"

namespace {

void* allocate(size_t size) {
  void* memory = malloc(size ? size : 1);
  if (!memory) aici::fail("out of memory");
  return memory;
}

// Runs before all other constructors, so this records whether the runtime has called _initialize.
bool started = false;
__attribute__((constructor(101))) void mark_started() { started = true; }

constexpr int32_t WASI_BADF = 8;

}  // namespace

extern "C" void _initialize(void);

namespace aici {
void start() {
  if (!started) _initialize();
}
}  // namespace aici

void* operator new(size_t size) { return allocate(size); }
void* operator new[](size_t size) { return allocate(size); }
void operator delete(void* memory) noexcept { free(memory); }
void operator delete[](void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }
void operator delete[](void* memory, size_t) noexcept { free(memory); }

// Weak, because a controller linked with libc++ brings its own.
extern "C" __attribute__((weak)) void __cxa_pure_virtual() { aici::fail("a pure virtual function was called"); }

// libc++ ends up here instead of throwing.
namespace std {
inline namespace __1 {
[[noreturn]] __attribute__((weak)) void __libcpp_verbose_abort(const char* format, ...) noexcept { aici::fail(format); }
}  // namespace __1
}  // namespace std

extern "C" {
// Standard output is a character device (filetype 2), so the C library flushes it at the end of each line.
int32_t __imported_wasi_snapshot_preview1_fd_fdstat_get(int32_t fd, int32_t result) {
  if (fd < 0 || fd > 2) return WASI_BADF;
  auto* bytes = reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(result));
  for (int i = 0; i < 24; i++) bytes[i] = i == 0 ? 2 : 0;
  return 0;
}
int32_t __imported_wasi_snapshot_preview1_fd_seek(int32_t, int64_t, int32_t, int32_t) { return WASI_BADF; }
int32_t __imported_wasi_snapshot_preview1_fd_read(int32_t, int32_t, int32_t, int32_t) { return WASI_BADF; }
int32_t __imported_wasi_snapshot_preview1_fd_close(int32_t) { return WASI_BADF; }
int32_t __imported_wasi_snapshot_preview1_environ_get(int32_t, int32_t) { return WASI_BADF; }
int32_t __imported_wasi_snapshot_preview1_environ_sizes_get(int32_t, int32_t) { return WASI_BADF; }
int32_t __imported_wasi_snapshot_preview1_clock_time_get(int32_t, int64_t, int32_t) { return WASI_BADF; }
[[noreturn]] void __imported_wasi_snapshot_preview1_proc_exit(int32_t) { aici::fail("the controller called exit()"); }
// The C library of the toolchain imports fd_close from close() itself.
int close(int) { return -1; }
}
