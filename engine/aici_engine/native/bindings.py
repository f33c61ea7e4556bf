"""ctypes declarations of the functions and structures in `src/*.c`. Field order must equal the C sources."""

import ctypes
from ctypes import POINTER, Structure, c_double, c_float, c_int32, c_size_t, c_void_p
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
        ("rope", c_int32),
    )


class CDecoder(Structure):
    _fields_ = (
        ("num_layers", c_int32),
        ("hidden_size", c_int32),
        ("intermediate_size", c_int32),
        ("num_heads", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("num_ropes", c_int32),
        ("rotary_dim", c_int32),
        ("joint_qk_norms", c_int32),
        ("layer_norm", c_int32),
        ("gated_mlp", c_int32),
        ("norm_eps", c_float),
        ("embedding_scale", c_float),
        ("query_scale", c_float),
        ("activation_linear", c_float),
        ("activation_cubic", c_float),
        ("attention_softcap", c_float),
        ("logit_softcap", c_float),
        ("inv_freqs", POINTER(c_float)),
        ("rope_scales", POINTER(c_float)),
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
        ("query_starts", c_void_p),
        ("start_positions", c_void_p),
        ("page_starts", c_void_p),
        ("pages", c_void_p),
        ("logit_rows", c_void_p),
        ("num_states", c_int32),
        ("state_rows", c_void_p),
        ("final_states", c_void_p),
    )


class CCache(Structure):
    _fields_ = (
        ("keys", c_void_p),
        ("values", c_void_p),
        ("format", c_int32),
        ("page_size", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
    )


class CAttention(Structure):
    _fields_ = (
        ("cache", POINTER(CCache)),
        ("batch", POINTER(CBatch)),
        ("queries", c_void_p),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("queries_per_kv", c_int32),
        ("window", c_int32),
        ("softcap", c_float),
        ("out", c_void_p),
    )


class CProfile(Structure):
    """By kind of work: products of the layers, product of the head, attention, rest."""

    _fields_ = (("seconds", c_double * 4), ("operations", c_double * 4))


def declare(library: ctypes.CDLL) -> None:
    """Declare argument and result types of the functions in `library`. Calls release the GIL."""
    library.aici_pool_new.argtypes = [c_int32]
    library.aici_pool_new.restype = c_void_p
    library.aici_pool_free.argtypes = [c_void_p]
    library.aici_pool_free.restype = None
    library.aici_pool_profile.argtypes = [c_void_p, POINTER(CProfile)]
    library.aici_pool_profile.restype = None
    library.aici_peak.argtypes = [c_void_p, c_int32, c_int32]
    library.aici_peak.restype = None
    library.aici_linear_memory.argtypes = [POINTER(CMatrix), c_int32]
    library.aici_linear_memory.restype = c_size_t
    library.aici_linear.argtypes = [c_void_p, POINTER(CMatrix), c_void_p, c_int32, c_void_p, c_void_p]
    library.aici_linear.restype = None
    library.aici_decoder_memory.argtypes = [POINTER(CDecoder), c_int32]
    library.aici_decoder_memory.restype = c_size_t
    library.aici_decoder_stage.argtypes = [
        c_void_p,
        POINTER(CDecoder),
        POINTER(CStorage),
        POINTER(CBatch),
        c_void_p,
        c_void_p,
        c_void_p,
        c_void_p,
    ]
    library.aici_decoder_stage.restype = None
    library.aici_attend.argtypes = [c_void_p, POINTER(CAttention)]
    library.aici_attend.restype = None
