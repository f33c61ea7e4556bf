"""Generate MicroPython's headers from its sources and the guest's: names, modules, and roots of the garbage collector.

MicroPython's own scripts generate the headers; the toolchain's preprocessor is used.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aici_base.errors import ControllerError
from aici_controllers import zig

_MODES: Final = {"qstr": "qstrdefs", "module": "moduledefs", "root_pointer": "root_pointers"}
_SCRIPTS: Final = {"moduledefs": "makemoduledefs.py", "root_pointers": "make_root_pointers.py"}


def make_headers(
    tree: Path, sources: Sequence[Path], includes: Sequence[Path], flags: Sequence[str], into: Path
) -> None:
    """Generate the headers in `into`/genhdr. `sources`: all C sources of the guest; `tree`: the sources of
    MicroPython."""
    headers = into / "genhdr"
    headers.mkdir(parents=True)
    version = re.search(r"micropython-([\d.]+)", tree.name)
    tag = f"v{version[1]}" if version else "unknown"
    (headers / "mpversion.h").write_text(
        f'#define MICROPY_GIT_TAG "{tag}"\n#define MICROPY_GIT_HASH ""\n#define MICROPY_BUILD_DATE ""\n'
    )
    with tempfile.TemporaryDirectory(prefix="aici-names-") as name:
        scratch = Path(name)
        _collect(tree / "py", sources, includes, flags, scratch)
        for made, script in _SCRIPTS.items():
            (headers / f"{made}.h").write_text(_run(tree / "py" / script, scratch / made), "utf-8")
        # Names are quoted to protect them from the preprocessor, which decides which names are needed.
        names = (tree / "py" / "qstrdefs.h").read_text("utf-8") + (scratch / "qstrdefs").read_text("utf-8")
        quoted, wanted = scratch / "names.c", scratch / "names.h"
        quoted.write_text(re.sub(r"(?m)^Q\(.*\)", r'"\g<0>"', names), "utf-8")
        text = zig.preprocess(quoted, includes, ["-w", *flags])
        wanted.write_text(re.sub(r'(?m)^"(Q\(.*\))"', r"\1", text), "utf-8")
        (headers / "qstrdefs.generated.h").write_text(_run(tree / "py" / "makeqstrdata.py", wanted), "utf-8")


def _collect(
    scripts: Path, sources: Sequence[Path], includes: Sequence[Path], flags: Sequence[str], scratch: Path
) -> None:
    """Collect the registrations in the sources, one file per kind."""
    together, preprocessed = scratch / "together.c", scratch / "together.i"
    together.write_text("".join(f'#include "{path.resolve()}"\n' for path in sources))
    preprocessed.write_text(zig.preprocess(together, includes, ["-w", "-DNO_QSTR", *flags]), "utf-8")
    for mode, name in _MODES.items():
        _run(scripts / "makeqstrdefs.py", "split", mode, preprocessed, scratch / mode, "_")
        _run(scripts / "makeqstrdefs.py", "cat", mode, "_", scratch / mode, scratch / name)


def _run(script: Path, *arguments: object) -> str:
    command = [sys.executable, str(script), *map(str, arguments)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        raise ControllerError(f"{script.name} of MicroPython failed\n{done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
