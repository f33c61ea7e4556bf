"""`python -m tests.fuzz [NAME...] --minutes M`: random inputs for every parser of the wire, of bodies and of files.

An input has a number; the seed and the number make the input again: `--seed S --first N`. A child runs the target, so
that a crash of native code is a finding like others. The exit code is 1 after a finding.
"""

import argparse
import sys

from tests.fuzz.driver import fuzz
from tests.fuzz.targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TARGETS))
    parser.add_argument("--minutes", type=float, default=1.0, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(TARGETS):
        parser.error(f"no target is called {', '.join(unknown)}: {', '.join(TARGETS)}")
    found = [fuzz(name, chosen.seed, chosen.first, chosen.minutes * 60) for name in chosen.names or TARGETS]
    return 1 if any(found) else 0


if __name__ == "__main__":
    sys.exit(main())
