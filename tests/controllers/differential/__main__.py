"""Differential runs on the native build of the guests, for hours. A difference names the seed of its case.

    python -m tests.controllers.differential KIND [--seconds 600] [--seed 0] [--only SEED]

KIND: whole (patterns against `re`), search (patterns of JSON Schema against `re`), schemas (against two validators),
grammars (Lark, GBNF and .y against lark's Earley parser). Case number n has the seed n. The first differences are
printed; the exit code is 1 if there are any.
"""

import argparse
import sys
import time
from collections import Counter
from random import Random

from tests.controllers.differential.kinds import KINDS
from tests.support.native_tool import NativeTool, NoAnswerError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--only", type=int, help="run the case with this seed alone")
    parser.add_argument("--program", help="the guest's tool, if it is built already")
    parser.add_argument("--show", type=int, default=20, help="differences to print")
    args = parser.parse_args()
    guest, case = KINDS[args.kind]
    tool = NativeTool(guest, program=args.program)
    counts: Counter[str] = Counter()
    seed = first = args.seed if args.only is None else args.only
    num_found, end = 0, time.monotonic() + args.seconds
    while time.monotonic() < end and (args.only is None or seed == first):
        try:
            for finding in case(tool, Random(seed), counts):
                num_found += 1
                if num_found <= args.show:
                    print(f"seed {seed}: {finding.why}\n  {finding.source}\n  {finding.text!r}", flush=True)
        except NoAnswerError as error:
            num_found += 1
            print(f"seed {seed}: {error}", flush=True)
        seed += 1
    tool.close()
    print(f"{args.kind}: seeds {first} to {seed - 1}, {num_found} differences")
    for key, count in counts.most_common():
        print(f"{count:9} {key}")
    return 1 if num_found else 0


if __name__ == "__main__":
    sys.exit(main())
