#include "export.h"

/* Hash of the sources at compile time. Python refuses a library with another hash. */
AICI_EXPORT int aici_native_abi(void) { return AICI_NATIVE_ABI; }
