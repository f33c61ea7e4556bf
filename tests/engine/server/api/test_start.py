"""What a server imports before its engine starts."""

import subprocess
import sys


def test_fastapi_is_imported_while_the_engine_starts() -> None:
    """The import takes most of a second, and the start of the engine would wait for it."""
    program = "import sys, aici_engine.server.api.serve; print({'fastapi', 'uvicorn'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
