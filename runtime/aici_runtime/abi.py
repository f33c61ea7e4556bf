"""The binary interface between host and guest, in one place.

There are two: *callbacks*, that of early 2024 (pre, mid, post), and *branches*, the later one (mid alone). A guest
speaks the first if it exports `aici_pre_process`. `controllers/sdk/include/aici_abi.h` is generated from what callbacks
have here (`python -m aici_controllers.abi_header`), a test compares the two, and `aici.h` documents it for authors.
"""

from enum import IntEnum
from typing import Literal

Abi = Literal["v1", "v2"]

MAX_TOKEN_LEN = 254
"""Bytes. A token offset entry is `offset << TOKEN_LEN_BITS | length`, so a longer token cannot be described."""

TRIE_MAGIC = 0x558B6FD3
TRIE_HEADER_SIZE = 28
"""Bytes: seven u32: magic, header size, node bytes, offset bytes, data bytes, vocabulary size, EOS token."""

NODE_SIZE = 8
"""Bytes: two u32: `token_id << 8 | byte`, `subtree_size << 8 | num_parents`."""

NO_TOKEN = 0xFFFFFF
TOKEN_LEN_BITS = 8

TOKEN_LEN_BITS_V2 = 10
"""In the trie that guests of the later interface read: tokens of up to 1,023 bytes."""

UNBOUND_SEQ_ID = 424242
"""What `aici_host_self_seq_id` answers before the instance is bound to a sequence."""


class Blob(IntEnum):
    """Host-side byte strings that a guest reads with `aici_host_read_blob`. Guests treat the numbers as opaque."""

    MODULE_ARG = 1
    TOKENIZE = 2
    TOKENS = 3
    PROCESS_ARG = 4
    STORAGE_RESULT = 5
    TRIE = 100


NUM_BLOBS = 20
"""Ids below this are valid, and empty unless named above."""

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
"""Imports of module `env`: parameters and result, one letter a value: i = i32, I = i64."""

IMPORTS_V2: dict[str, tuple[str, str]] = {
    "aici_host_return_logit_bias": ("i", "i"),
    "aici_host_get_config": ("ii", "i"),
}
"""What the later interface has instead, or beside. The type that a module imports decides which one it gets."""

EXPORTS_V1: dict[str, tuple[str, str]] = {
    "aici_init": ("", ""),
    "aici_create": ("", "i"),
    "aici_init_prompt": ("i", ""),
    "aici_pre_process": ("i", ""),
    "aici_mid_process": ("i", ""),
    "aici_post_process": ("i", ""),
}
"""Functions that a guest must export, beside its `memory`."""

EXPORTS_V2 = {name: kind for name, kind in EXPORTS_V1.items() if name not in ("aici_pre_process", "aici_post_process")}
"""Those of the later interface."""

OPTIONAL_EXPORTS: dict[str, tuple[str, str]] = {"_initialize": ("", ""), "aici_panic": ("", "")}
"""`_initialize` (WASI reactors) is called once before `aici_init`; `aici_panic` after a fatal host error."""

NO_TEMPLATE_EXPORT = "aici_no_template"
"""A module that exports this, whatever it is, is never kept as a template: each of its guests starts afresh."""
