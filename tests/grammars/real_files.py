"""Compare the grammars c and python with independent parsers on real files, and on files spoiled by one mistake.

    python -m tests.grammars.real_files c FOLDER...
    python -m tests.grammars.real_files python FOLDER...

Reads the files of C or Python below each folder; `--limit` and `--seed` choose among them. Nothing of them is kept.
C is compared with tree-sitter, which reads no macros, so its refusal of a real file says little; Python with `ast`.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from aici_controllers.catalog import guest_path
from tests.grammars.oracles import parses_as_c, parses_as_python
from tests.grammars.verdicts import verdicts
from tests.support.tool_guest import ToolGuest

_ORACLES = {"c": parses_as_c, "python": parses_as_python}
_ENDINGS = {"c": (".c", ".h"), "python": (".py",)}
_PIECE = re.compile(r"""\n[ \t]*|[ \t]+|\w+|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\W""")
_MAX_BYTES = 60_000


def _files(name: str, folders: Sequence[Path]) -> Iterator[Path]:
    for folder in folders:
        yield from (path for path in sorted(folder.rglob("*")) if path.suffix in _ENDINGS[name] and path.is_file())


def _spoiled(text: str, random: Random) -> str:
    pieces = _PIECE.findall(text)
    at, other = random.randrange(len(pieces)), random.randrange(len(pieces))
    match random.randrange(3):
        case 0:
            del pieces[at]
        case 1:
            pieces.insert(at, pieces[other])
        case _:
            pieces[at], pieces[other] = pieces[other], pieces[at]
    return "".join(pieces)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grammar", choices=sorted(_ENDINGS))
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--limit", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    random, tool = Random(options.seed), ToolGuest(guest_path("grammar"))
    paths = [path for path in _files(options.grammar, options.folders) if 0 < path.stat().st_size <= _MAX_BYTES]
    texts: dict[str, str] = {}
    for path in random.sample(paths, min(len(paths), options.limit)):
        try:
            texts[str(path)] = path.read_bytes().decode()
        except UnicodeDecodeError:
            continue
    spoiled = {f"{path}, spoiled": _spoiled(text, random) for path, text in texts.items()}
    for title, group in (("real files", texts), ("spoiled files", spoiled)):
        ours = verdicts(tool, options.grammar, list(group.values()))
        pairs = list(zip((_ORACLES[options.grammar](text) for text in group.values()), ours, strict=True))
        print(f"{title}: {dict(Counter(pairs))} (theirs, ours)")
        for path, (their, our) in zip(group, pairs, strict=True):
            if their != our:
                print(f"  {path}: {their}, {our}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
