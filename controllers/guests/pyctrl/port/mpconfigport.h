// The configuration of MicroPython: the whole language, and of the library the parts without files, network, threads or
// clock.
#include <alloca.h>
#include <stdint.h>
#include <stdlib.h>

typedef intptr_t mp_int_t;
typedef uintptr_t mp_uint_t;
typedef long mp_off_t;

#define MP_STATE_PORT MP_STATE_VM
#define MICROPY_PY_SYS_PLATFORM "aici"

#define MICROPY_CONFIG_ROM_LEVEL (MICROPY_CONFIG_ROM_LEVEL_EXTRA_FEATURES)
#define MICROPY_ENABLE_COMPILER (1)
#define MICROPY_COMP_ALLOW_TOP_LEVEL_AWAIT (1)
#define MICROPY_ENABLE_EXTERNAL_IMPORT (1)  // of the files in lib/, which are part of the module
#define MICROPY_ENABLE_DOC_STRING (0)
#define MICROPY_ERROR_REPORTING (MICROPY_ERROR_REPORTING_DETAILED)
#define MICROPY_LONGINT_IMPL (MICROPY_LONGINT_IMPL_MPZ)
#define MICROPY_FLOAT_IMPL (MICROPY_FLOAT_IMPL_DOUBLE)
#define MICROPY_NLR_SETJMP (1)
#define MICROPY_USE_INTERNAL_ERRNO (1)
#define MICROPY_USE_INTERNAL_PRINTF (0)

// A collector that scans the stack would miss values in WebAssembly locals. So the heap grows while a callback runs,
// and is collected at the start of the next callback.
#define MICROPY_ENABLE_GC (1)
#define MICROPY_GC_SPLIT_HEAP (1)
#define MICROPY_GC_SPLIT_HEAP_AUTO (1)

// Two forks of a process draw the same random numbers, and so do two runs of a script.
#define MICROPY_PY_RANDOM_SEED_INIT_FUNC (0x61696369)

#define MICROPY_PY_RE_MATCH_GROUPS (1)
#define MICROPY_PY_RE_MATCH_SPAN_START_END (1)
#define MICROPY_PY_COLLECTIONS_NAMEDTUPLE__ASDICT (1)
#define MICROPY_PY_FUNCTION_ATTRS_CODE (0)

#define MICROPY_ENABLE_SCHEDULER (0)
#define MICROPY_HELPER_REPL (0)
#define MICROPY_KBD_EXCEPTION (0)
#define MICROPY_PERSISTENT_CODE_LOAD (0)
#define MICROPY_PY_ASYNCIO (0)
#define MICROPY_PY_BINASCII_CRC32 (0)
#define MICROPY_PY_BUILTINS_COMPLEX (0)
#define MICROPY_PY_BUILTINS_EXECFILE (0)
#define MICROPY_PY_BUILTINS_HELP (0)
#define MICROPY_PY_BUILTINS_INPUT (0)
#define MICROPY_PY_CMATH (0)
#define MICROPY_PY_DEFLATE (0)
#define MICROPY_PY_ERRNO (0)
#define MICROPY_PY_FRAMEBUF (0)
#define MICROPY_PY_HASHLIB (0)
#define MICROPY_PY_MATH_SPECIAL_FUNCTIONS (0)
#define MICROPY_PY_MICROPYTHON (0)
#define MICROPY_PY_MICROPYTHON_RINGIO (0)
#define MICROPY_PY_OS (0)
#define MICROPY_PY_PLATFORM (0)
#define MICROPY_PY_SELECT (0)
#define MICROPY_PY_SYS_PS1_PS2 (0)
#define MICROPY_PY_SYS_STDFILES (0)
#define MICROPY_PY_SYS_STDIO_BUFFER (0)
#define MICROPY_PY_TIME (0)
#define MICROPY_PY_UCTYPES (0)
#define MICROPY_VFS (0)
