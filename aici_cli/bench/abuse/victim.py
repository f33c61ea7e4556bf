"""The victim: one plain stream after another. Prints the time of each event with new tokens.

A plan arrives as JSON on stdin: the address, the headers, the body. Lines on stdout are a word and a time of the
machine's monotonic clock: `sent`, `token`, `end`; `failed` has the reason behind the time. Ends with its stdout.
"""

import http.client
import json
import sys
import time

from aici_cli.bench.abuse.client import Body, Client


def _main() -> None:
    plan = json.loads(sys.stdin.readline())
    client = Client(plan["url"], plan["headers"], plan["timeout_s"])
    body = Body.json("/run", plan["body"])
    while True:
        _say("sent")
        try:
            failed = _stream(client, body)
        except (OSError, http.client.HTTPException) as error:
            failed = repr(error)
        _say("failed" if failed else "end", failed)
        if failed:
            time.sleep(0.1)


def _stream(client: Client, body: Body) -> str:
    with client.send(body) as answer:
        if answer.status != 200:
            return f"{answer.status} {answer.read()[:200]!r}"
        for line in answer:
            if line.startswith(b"data: {"):
                for fork in json.loads(line[6:]).get("forks", []):
                    if fork["error"]:
                        return str(fork["error"])
                    if fork["tokens"]:
                        _say("token")
    return ""


def _say(what: str, more: str = "") -> None:
    print(what, f"{time.monotonic():.6f}", more.replace("\n", " "), flush=True)


if __name__ == "__main__":
    try:
        _main()
    except BrokenPipeError:
        sys.stderr.close()
