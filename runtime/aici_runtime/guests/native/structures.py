"""ctypes declarations of the structures in `src/`. Field order must equal the C sources."""

import ctypes
from ctypes import POINTER, Structure, c_size_t, c_uint32, c_uint64, c_void_p

MAX_CALLS = 3
MAX_OPS = 512


class CWasmtime(Structure):
    _fields_ = (
        ("func_call_unchecked", c_void_p),
        ("memory_data", c_void_p),
        ("memory_data_size", c_void_p),
    )


class CSlotLayout(Structure):
    _fields_ = tuple(
        (name, c_uint32)
        for name in (
            *("request", "response", "cancelled", "number", "detached", "writing", "bell", "answered", "leave"),
            *("mid_started", "request_bytes", "response_bytes", "mask", "gone"),
        )
    )


class CMaskFormat(Structure):
    _fields_ = (
        ("mask_bytes", c_uint32),
        ("vocab_size", c_uint32),
        ("element_bytes", c_uint32),
        ("denied", c_uint32),
        ("without_bias", c_void_p),
    )


class CCall(Structure):
    _fields_ = (
        ("error", c_void_p),
        ("trap", c_void_p),
        ("result", c_void_p),
        ("result_len", c_uint32),
        ("has_mask", c_uint32),
        ("elapsed_ns", c_uint64),
    )


class CGuest(Structure):
    _fields_ = (
        ("context", c_void_p),
        ("memory", c_void_p),
        ("post", c_void_p),
        ("pre", c_void_p),
        ("mid", c_void_p),
        ("memory_data", c_void_p),
        ("interrupted", c_void_p),
        ("slot", c_void_p),
        ("handle", c_uint32),
        ("number", c_uint32),
        ("seq_id", c_uint32),
        ("is_busy", c_uint32),
        ("is_usual", c_uint32),
        ("num_calls", c_uint32),
        ("calls", CCall * MAX_CALLS),
    )


Attend = ctypes.CFUNCTYPE(None, c_uint32)
Callback = ctypes.CFUNCTYPE(c_size_t, c_void_p, c_void_p, POINTER(c_uint32))
"""A host function of wasmtime's unchecked API. The last argument, the number of values, is not declared: ctypes would
make an object of it in every call."""


class CHost(Structure):
    _fields_ = (
        ("wasmtime", CWasmtime),
        ("layout", CSlotLayout),
        ("format", CMaskFormat),
        ("request_max", c_uint32),
        ("result_max", c_uint32),
        ("process_arg", c_uint32),
        ("lock", c_uint32),
        ("attend", Attend),
        ("refuse", Callback),
        ("argument", c_void_p),
        ("result", c_void_p),
        ("mask", c_void_p),
        ("argument_len", c_size_t),
        ("result_len", c_size_t),
        ("has_result", c_uint32),
        ("has_mask", c_uint32),
        ("takes_mask", c_uint32),
        ("has_used_python", c_uint32),
    )


class CHostFunction(Structure):
    _fields_ = (("host", POINTER(CHost)), ("python", c_void_p))


class CPool(Structure):
    _fields_ = (
        ("slot", c_void_p),
        ("guests", POINTER(POINTER(CGuest))),
        ("num_guests", c_uint32),
        ("heard", c_uint32),
        ("in_round", c_uint32),
        ("has_news", c_uint32),
    )


NO_POOL = 0xFFFFFFFF


class CSequence(Structure):
    _fields_ = (
        ("slot", c_void_p),
        ("seq_id", c_uint32),
        ("pool", c_uint32),
        ("turn", c_uint32),
        ("kind", c_uint32),
        ("backtrack", c_uint32),
        ("token", c_uint32),
    )


class CMailbox(Structure):
    _fields_ = (("memory", c_void_p), ("size", c_size_t), ("writable", c_void_p), ("readable", c_void_p))


class CCalmTurns(Structure):
    _fields_ = (
        ("sem_wait", c_void_p),
        ("sem_post", c_void_p),
        ("requests", CMailbox),
        ("responses", CMailbox),
        ("layout", CSlotLayout),
        ("sequences", POINTER(CSequence)),
        ("pools", POINTER(c_void_p)),
        ("rows", c_void_p),
        ("region_bytes", c_size_t),
        ("limit_ns", c_uint64),
        ("until_ns", c_uint64),
        ("started_ns", c_uint64),
        ("num_sequences", c_uint32),
        ("num_pools", c_uint32),
        ("row_bytes", c_uint32),
        ("is_patient", c_uint32),
        ("turn", c_uint32),
        ("engine_core", c_uint32),
        ("longest_us", c_uint32),
    )


class CCalmChannel(Structure):
    _fields_ = (
        ("sem_wait", c_void_p),
        ("sem_trywait", c_void_p),
        ("sem_post", c_void_p),
        ("requests", CMailbox),
        ("responses", CMailbox),
        ("micros", c_uint32 * MAX_OPS),
    )
