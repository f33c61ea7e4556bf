// setjmp and longjmp over WebAssembly exceptions, as the compiler calls them (LLVM's WebAssemblyLowerEmscriptenEHSjLj):
// a longjmp throws, and every function that called setjmp catches and checks whether the exception is its own. The C
// library of the toolchain has the same code, but would be compiled anew for the flags that select the code.
#include <setjmp.h>
#include <stdint.h>

typedef struct Jump {
  void* invocation;  // of the function that called setjmp
  uint32_t label;    // of the call; never 0
  struct {
    void* env;
    int value;
  } thrown;
} Jump;

_Static_assert(sizeof(Jump) <= sizeof(jmp_buf), "");

__asm__(
    ".tagtype __c_longjmp i32\n"
    ".globl __c_longjmp\n"
    "__c_longjmp:\n");

void __wasm_setjmp(void* env, uint32_t label, void* invocation) {
  Jump* jump = env;
  jump->invocation = invocation;
  jump->label = label;
}

uint32_t __wasm_setjmp_test(void* env, void* invocation) {
  Jump* jump = env;
  return jump->invocation == invocation ? jump->label : 0;
}

void __wasm_longjmp(void* env, int value) {
  Jump* jump = env;
  jump->thrown.env = env;
  jump->thrown.value = value ? value : 1;
  __builtin_wasm_throw(1, &jump->thrown);  // 1: __c_longjmp
}
