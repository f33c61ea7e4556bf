from aici_controllers import build
from aici_controllers.abi_header import abi_header
from aici_runtime.abi import EXPORTS_V1, IMPORTS_V1


def test_the_committed_header_is_the_generated_one() -> None:
    committed = (build.sdk_dir() / "include" / "aici_abi.h").read_text()
    assert committed == abi_header(), "run: python -m aici_controllers.abi_header > controllers/sdk/include/aici_abi.h"


def test_the_header_for_authors_documents_every_function() -> None:
    text = (build.sdk_dir() / "include" / "aici.h").read_text()
    assert [name for name in [*IMPORTS_V1, *EXPORTS_V1] if f" {name}(" not in text] == []
