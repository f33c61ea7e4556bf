"""An engine in a separate process, to be killed: `python -m tests.wire.support.mortal {json}`.

Prints the pid and prefix of its runtime as soon as the runtime answers, then sleeps.
"""

import json
import signal
import sys
from pathlib import Path
from typing import NoReturn

from tests.wire.support.engine import Binary, Engine


def main(arguments: str) -> NoReturn:
    given = json.loads(arguments)
    binary = Binary(tuple(given["command"]), Path(given["folder"]), Path(given["tokenizer"]), ())
    engine = Engine(binary, given["version"], given["sync"])
    engine.is_well()
    print(json.dumps([engine.process.pid, engine.prefix]), flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
