"""A process that asks one engine about schemas, JSON lines in and out.

    python -m tests.real_schemas.worker ENGINE SECONDS [PROGRAM]

SIGPROF ends the process when a question has taken so many seconds of CPU time. PROGRAM is our
guest built natively: a process of its own, whose time does not count.
"""

import json
import resource
import signal
import sys

from tests.real_schemas.engines import ENGINES, DeclinedError

_MEMORY_MAX_BYTES = 12 << 30


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_MAX_BYTES, _MEMORY_MAX_BYTES))
    engine = ENGINES[sys.argv[1]](sys.argv[3] if len(sys.argv) > 3 else None)
    out = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        question = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, float(sys.argv[2]))
        try:
            answer = {"accepted": engine.accepted(question["schema"], question["texts"])}
        except DeclinedError as error:
            answer = {"declined": str(error)}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    _main()
