"""Thousands of requests while processes are killed, stopped and starved: `python -m tests.chaos`.

Clients of all protocols talk to a server with a tiny model. Every kind of fault happens `--times` times. Every request
must end exactly once, none may hang, and what the server promised to keep must be there after a kill of the API
process. Afterwards nothing may be left: running sequences, cache pages, processes, zombies, shared objects,
descriptors.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.plan import FAULTS, chosen
from tests.chaos.run import ChaosRun, run_chaos
from tests.chaos.served import Served, write_chat_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--requests", type=int, default=10_000, help="at least; the run also ends no earlier than its faults"
    )
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--times", type=int, default=3, help="how often each fault happens, at least")
    parser.add_argument("--pause", type=float, default=1.0, help="mean seconds between two faults")
    parser.add_argument("--faults", nargs="*", default=[], metavar="FAULT", help=", ".join(map(str, FAULTS)))
    parser.add_argument("--replicas", type=int, default=1, help="engine processes of the model")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    try:
        faults = chosen(args.faults)
    except ValueError as error:
        parser.error(str(error))
    print(f"seed {args.seed}")
    plan = ChaosRun(
        num_requests=args.requests,
        num_clients=args.clients,
        faults=faults,
        times=args.times,
        pause_s=args.pause,
        seed=args.seed,
    )
    with tempfile.TemporaryDirectory(prefix="aici-chaos-") as name:
        folder = Path(name)
        model = write_chat_model(folder / "model")
        options = ["--max-num-seqs", "8", "--threads", "1", "--replicas", str(args.replicas)]
        with Served(model, folder, *options, num_engines=args.replicas) as served:
            bad = run_chaos(plan, served)
            if bad:
                kept = Path(tempfile.gettempdir()) / "chaos-server.log"
                kept.write_bytes(served.log.read_bytes())
                print(f"the server's log: {kept}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
