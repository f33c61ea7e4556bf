"""The attacker: one attack, in a process of its own, which the parent kills.

A plan arrives as a line of JSON on stdin: the address, the headers, the name of the attack, and the second at which
the process ends by itself. Lines on stdout: `ready`, and the status of each answer. The attack begins with the second
line on stdin.
"""

import json
import os
import signal
import sys
import threading
import time

from aici_cli.bench.abuse.attacks import ATTACKS, Attacker
from aici_cli.bench.abuse.client import Body, Client


def _main() -> None:
    plan = json.loads(sys.stdin.readline())
    threading.Timer(plan["ends_after_s"], os._exit, [0]).start()
    client = Client(plan["url"], plan["headers"])

    def upload(wasm: bytes) -> str:
        with client.send(Body.wasm(wasm)) as answer:
            text = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"the attack's controller was refused: {answer.status} {text.decode()[:300]}")
        return str(json.loads(text)["module_id"])

    one_at_a_time = threading.Lock()

    def answered(status: str) -> None:
        with one_at_a_time:
            print(status.replace("\n", " "), flush=True)

    begin = ATTACKS[plan["attack"]].prepare(Attacker(client, upload, answered))
    answered("ready")
    if sys.stdin.readline():
        begin()
        time.sleep(plan["ends_after_s"])


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    _main()
