#include "export.h"

/* What the sources were when this was compiled: a library that is older than they are is refused, not called. */
AICI_EXPORT int aici_native_abi(void) { return AICI_NATIVE_ABI; }
