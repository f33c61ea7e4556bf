"""Write the pictures in `docs/assets/` that the README shows: real commands, run on this machine, and their real
output.

    python docs/terminal.py

With AICI_API_BASE, a server answers, which is faster.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

_ROOT = Path(__file__).parents[1]
_PERSON = "tests/docs/person.json"
_PICTURES = {
    "terminal": [
        (r"""aici run --regex '\d{4}' "The Second World War ended in " """, None),
        ("""aici run --choice positive --choice negative "Great tea, cold cup. Sentiment: " """, None),
        ("""aici run --json-schema person.json "A person: " """, _PERSON),
        ("""aici run cities.js""", "examples/cities.js"),
    ],
    "explain": [("""aici run --explain --json-schema person.json "A person: " """, _PERSON)],
}
"""The commands of each picture, and the path of the file that a command names."""
_WIDTHS = {"explain": 104}


def main() -> None:
    for name, commands in _PICTURES.items():
        console = Console(record=True, width=_WIDTHS.get(name, 88), file=open("/dev/null", "w"))  # noqa: SIM115
        for shown, file in commands:
            words = [str(_ROOT / file) if file and word == Path(file).name else word for word in shlex.split(shown)]
            console.print(Text.assemble(("$ ", "bold green"), (shown.strip(), "bold")))
            console.print(Text.from_ansi(_output(words[1:])))
        svg = console.export_svg(title="aici")
        # Rich names fonts of a CDN; the reader's own monospace font replaces the fonts.
        svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code", "ui-monospace")
        (_ROOT / "docs/assets" / f"{name}.svg").write_text(svg)


def _output(arguments: list[str]) -> str:
    command = [sys.executable, "-P", "-m", "aici_cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "FORCE_COLOR": "1"})
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout.strip()


main()
