"""The binary interface between a guest and the runtime, in one place.

Guest ABI v1 (early 2024) has the callbacks pre, mid and post; v2 (after March 2024) has mid alone, with branches. A
guest that exports `aici_pre_process` speaks v1. `controllers/sdk/include/aici_abi.h` is generated from the constants of
v1 (`python -m aici_controllers.abi_header`), and a test compares the two. `aici.h` documents v1 for authors.
"""

from enum import IntEnum
from typing import Literal

Abi = Literal["v1", "v2"]

MAX_TOKEN_LEN = 254
"""In bytes. An entry of the token table is `offset << TOKEN_LEN_BITS | length`, so longer tokens cannot be described.
"""

TRIE_MAGIC = 0x558B6FD3
TRIE_HEADER_SIZE = 28
"""In bytes. Seven u32: magic, header size, node bytes, offset bytes, data bytes, vocabulary size, EOS token."""

NODE_SIZE = 8
"""In bytes. Two u32: `token_id << 8 | byte`, `subtree_size << 8 | num_parents`."""

NO_TOKEN = 0xFFFFFF
TOKEN_LEN_BITS = 8

TOKEN_LEN_BITS_V2 = 10
"""In the trie for guests of ABI v2: tokens of up to 1,023 bytes."""

UNBOUND_SEQ_ID = 424242
"""The result of `aici_host_self_seq_id` before the guest is bound to a sequence."""


class Blob(IntEnum):
    """Byte strings that a guest reads with `aici_host_read_blob`. To guests the numbers are opaque."""

    MODULE_ARG = 1
    TOKENIZE = 2
    TOKENS = 3
    PROCESS_ARG = 4
    STORAGE_RESULT = 5
    TRIE = 100


NUM_BLOBS = 20
"""All ids below this number are valid; ids without a name above are empty blobs."""

LOG_MAX_BYTES = 64 * 1024
LOG_DROP_BYTES = 16 * 1024

IMPORTS_V1: dict[str, tuple[str, str]] = {
    "aici_host_read_blob": ("iii", "i"),
    "aici_host_token_trie": ("", "i"),
    "aici_host_module_arg": ("", "i"),
    "aici_host_process_arg": ("", "i"),
    "aici_host_tokens": ("", "i"),
    "aici_host_tokenize": ("ii", "i"),
    "aici_host_return_logit_bias": ("i", ""),
    "aici_host_self_seq_id": ("", "i"),
    "aici_host_return_process_result": ("ii", ""),
    "aici_host_storage_cmd": ("ii", "i"),
    "aici_host_eos_token": ("", "i"),
    "aici_host_stop": ("", ""),
}
"""Imports of module `env`: parameters and result, one letter per value: i = i32, I = i64."""

IMPORTS_V2: dict[str, tuple[str, str]] = {
    "aici_host_return_logit_bias": ("i", "i"),
    "aici_host_get_config": ("ii", "i"),
}
"""Imports of ABI v2 that differ from v1 or are new. The type imported by the module selects between versions."""

EXPORTS_V1: dict[str, tuple[str, str]] = {
    "aici_init": ("", ""),
    "aici_create": ("", "i"),
    "aici_init_prompt": ("i", ""),
    "aici_pre_process": ("i", ""),
    "aici_mid_process": ("i", ""),
    "aici_post_process": ("i", ""),
}
"""Functions that a guest must export, besides its `memory`."""

EXPORTS_V2 = {name: kind for name, kind in EXPORTS_V1.items() if name not in ("aici_pre_process", "aici_post_process")}
"""Functions that a guest of ABI v2 must export."""

READ_VOCABULARY = "aici_read_vocabulary"
"""Called once between `aici_init` and `aici_create`, or not at all. A guest with this export may read the trie and the
EOS token here, and nothing else: the runtime keeps the memory and starts later guests from the copy (`snapshot.py`)."""

OPTIONAL_EXPORTS: dict[str, tuple[str, str]] = {
    "_initialize": ("", ""),
    READ_VOCABULARY: ("", ""),
    "aici_panic": ("", ""),
}
"""`_initialize` (WASI reactors) is called once before `aici_init`; `aici_panic` after a fatal error of the runtime."""

NO_TEMPLATE_EXPORT = "aici_no_template"
"""A module with an export of this name, of any kind, is never kept as a template: every guest starts afresh."""
