"""The functions and structures of `src/*.c`, as ctypes sees them."""

import ctypes
from ctypes import POINTER, Structure, c_float, c_int32, c_size_t, c_void_p
from enum import IntEnum


class Format(IntEnum):
    F32 = 0
    BF16 = 1
    INT8 = 2
    INT4 = 3


class CMatrix(Structure):
    _fields_ = (
        ("format", c_int32),
        ("rows", c_int32),
        ("columns", c_int32),
        ("values", c_void_p),
        ("scales", c_void_p),
        ("minimums", c_void_p),
        ("bias", c_void_p),
    )


class CLayer(Structure):
    _fields_ = (
        ("before_attention", c_void_p),
        ("after_attention", c_void_p),
        ("before_mlp", c_void_p),
        ("after_mlp", c_void_p),
        ("query_norm", c_void_p),
        ("key_norm", c_void_p),
        ("qkv", CMatrix),
        ("out", CMatrix),
        ("gate_up", CMatrix),
        ("down", CMatrix),
        ("window", c_int32),
        ("rotation", c_int32),
    )


class CLlama(Structure):
    _fields_ = (
        ("num_layers", c_int32),
        ("hidden", c_int32),
        ("inner", c_int32),
        ("query_heads", c_int32),
        ("key_heads", c_int32),
        ("width", c_int32),
        ("num_rotations", c_int32),
        ("turned", c_int32),
        ("joint_norms", c_int32),
        ("centered", c_int32),
        ("gated", c_int32),
        ("epsilon", c_float),
        ("embedding_scale", c_float),
        ("query_scale", c_float),
        ("gate_linear", c_float),
        ("gate_cubic", c_float),
        ("score_cap", c_float),
        ("logit_cap", c_float),
        ("frequencies", c_void_p),
        ("rope_scales", c_void_p),
        ("norm", c_void_p),
        ("embedding", CMatrix),
        ("positions", CMatrix),
        ("head", CMatrix),
        ("layers", POINTER(CLayer)),
    )


class CStorage(Structure):
    _fields_ = (
        ("keys", POINTER(c_void_p)),
        ("values", POINTER(c_void_p)),
        ("format", c_int32),
        ("page_size", c_int32),
    )


class CBatch(Structure):
    _fields_ = (
        ("num_tokens", c_int32),
        ("num_chunks", c_int32),
        ("num_logits", c_int32),
        ("tokens", c_void_p),
        ("first", c_void_p),
        ("start", c_void_p),
        ("page_at", c_void_p),
        ("pages", c_void_p),
        ("logit_rows", c_void_p),
    )


class CCache(Structure):
    _fields_ = (
        ("keys", c_void_p),
        ("values", c_void_p),
        ("format", c_int32),
        ("page_size", c_int32),
        ("heads", c_int32),
        ("width", c_int32),
    )


class CAttention(Structure):
    _fields_ = (
        ("cache", POINTER(CCache)),
        ("batch", POINTER(CBatch)),
        ("queries", c_void_p),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("group", c_int32),
        ("window", c_int32),
        ("cap", c_float),
        ("out", c_void_p),
    )


def declare(library: ctypes.CDLL) -> None:
    """Give the library's functions their types. Calls release the GIL."""
    library.aici_pool_new.argtypes = [c_int32]
    library.aici_pool_new.restype = c_void_p
    library.aici_pool_free.argtypes = [c_void_p]
    library.aici_pool_free.restype = None
    library.aici_linear_memory.argtypes = [POINTER(CMatrix), c_int32]
    library.aici_linear_memory.restype = c_size_t
    library.aici_linear.argtypes = [c_void_p, POINTER(CMatrix), c_void_p, c_int32, c_void_p, c_void_p]
    library.aici_linear.restype = None
    library.aici_llama_memory.argtypes = [POINTER(CLlama), c_int32]
    library.aici_llama_memory.restype = c_size_t
    library.aici_llama_step.argtypes = [
        c_void_p,
        POINTER(CLlama),
        POINTER(CStorage),
        POINTER(CBatch),
        c_void_p,
        c_void_p,
    ]
    library.aici_llama_step.restype = None
    library.aici_attend.argtypes = [c_void_p, POINTER(CAttention)]
    library.aici_attend.restype = None
