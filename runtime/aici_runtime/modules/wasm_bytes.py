"""The check that a file or an upload is a WebAssembly module in the binary format."""

from aici_base.errors import UsageError

_MAGIC = b"\0asm"
"""The first four bytes of every module in WebAssembly's binary format."""


def check_wasm(content: bytes, name: str, *, hint: str = "") -> None:
    """Raise UsageError unless `content` begins as a WebAssembly module. `name` says in the message what was checked.

    Only the magic number is compared: the compiler finds everything else that is wrong with a module.
    """
    if not content.startswith(_MAGIC):
        raise UsageError(
            f"{name} is not a WebAssembly module: the first bytes are not \\0asm",
            hint=hint or "give the bytes of a .wasm file",
            cli_hint="`aici ctrl build` makes one",
        )
