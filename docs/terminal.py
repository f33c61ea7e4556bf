"""Write `docs/assets/terminal.svg`, the picture in the README: real commands, run on this machine, and the real
output.

    python docs/terminal.py

With AICI_API_BASE, a server answers, which is faster.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

_PICTURE = Path(__file__).parent / "assets" / "terminal.svg"
_COMMANDS = [
    (r"""aici run --regex '\d{4}' "The Second World War ended in " """, None),
    ("""aici run --choice positive --choice negative "Great tea, cold cup. Sentiment: " """, None),
    ("""aici run --json-schema person.json "A person: " """, "tests/docs/person.json"),
    ("""aici run cities.js""", "examples/cities.js"),
]
"""A command as shown in the picture, and the path of the file that the command names."""


def main() -> None:
    root = Path(__file__).parents[1]
    console = Console(record=True, width=88, file=open("/dev/null", "w"))  # noqa: SIM115
    for shown, file in _COMMANDS:
        words = [str(root / file) if file and word == Path(file).name else word for word in shlex.split(shown)]
        done = subprocess.run([sys.executable, "-P", "-m", "aici_cli", *words[1:]], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        console.print(Text.assemble(("$ ", "bold green"), (shown.strip(), "bold")))
        console.print(Text(done.stdout.strip()))
    svg = console.export_svg(title="aici")
    # Rich names fonts of a CDN; the reader's own monospace font replaces the fonts.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code", "ui-monospace")
    _PICTURE.write_text(svg)


main()
