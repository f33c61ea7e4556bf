"""The other end of two mailboxes: `python -m tests.runtime.support.echo PREFIX SYNC SIZE SEED`.

Sends every message back reversed, after a pause, interrupted by signals, until the message `end`.
"""

import random
import signal
import sys
import time

from aici_runtime.channels.channel import Channels


def main(prefix: str, sync: str, size: str, seed: str) -> None:
    assert sync in ("semaphore", "futex")
    channels = Channels(prefix, sync, int(size))
    requests, responses = channels.attach("cmd", ""), channels.attach("resp", "")
    choose = random.Random(seed)
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
    print("ready", flush=True)
    while (message := requests.receive()) != b"end":
        time.sleep(choose.choice((0, 0, 0.0001, 0.001)))
        responses.send(message[::-1])
    signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
