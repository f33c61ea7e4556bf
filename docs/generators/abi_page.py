"""The ABI between guests and host functions, from `aici_runtime.abi`."""

from docs.generators.markdown import NOTE, table

_TYPES = {"i": "i32", "I": "i64"}


def abi_page() -> str:
    from aici_runtime import abi

    def functions(signatures: dict[str, tuple[str, str]]) -> str:
        return table(
            ("function", "parameters", "result"),
            (
                [f"`{name}`", ", ".join(_TYPES[kind] for kind in takes), _TYPES.get(gives, "")]
                for name, (takes, gives) in signatures.items()
            ),
        )

    constants = (
        [f"`{name}`", f"`{value:#x}`" if value > 0xFFFF else f"`{value}`"]
        for name, value in vars(abi).items()
        if name.isupper() and isinstance(value, int)
    )
    only_v2 = {name: kind for name, kind in abi.EXPORTS_V2.items() if name not in abi.EXPORTS_V1}
    parts = [
        NOTE.format(source="`runtime/aici_runtime/abi.py`"),
        "# Guest ABI\n\n",
        "A guest imports functions of the module `env` and exports callbacks. `controllers/sdk/include/aici.h` documents each for authors;\n",
        "[Controllers](../../controllers/README.md) is the introduction. A guest speaks v1 if it exports `aici_pre_process`, else v2.\n",
        "\n## Imports, v1\n",
        functions(abi.IMPORTS_V1),
        "\n## Imports of v2 instead or besides\n",
        functions(abi.IMPORTS_V2),
        "\n## Exports, v1\n\nBeside `memory`:\n",
        functions(abi.EXPORTS_V1),
        "\n## Exports, v2\n\n" + ", ".join(f"`{name}`" for name in abi.EXPORTS_V2) + ".\n",
        functions(only_v2),
        "\n## Optional exports\n",
        functions(abi.OPTIONAL_EXPORTS),
        f"\n`{abi.READ_VOCABULARY}` is called between `aici_init` and `aici_create`, or not at all: see\n",
        "[Snapshots](../explanations/runtime.md#snapshots).\n",
        f"A module that exports `{abi.NO_TEMPLATE_EXPORT}` has no templates.\n",
        "\n## Constants\n",
        table(("name", "value"), constants),
        "\n## Blobs\n\nByte strings that a guest reads with `aici_host_read_blob`:\n",
        table(("blob", "id"), ([f"`{blob.name}`", str(blob.value)] for blob in abi.Blob)),
    ]
    return "".join(parts)
