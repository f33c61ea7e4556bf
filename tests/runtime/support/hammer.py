"""One of several processes that change a shared registry: `python -m tests.runtime.support.hammer FOLDER NUMBER`.

Works for ever on names shared by all processes. A line on stdout names each tag of the process's own once set.
"""

import itertools
import random
import sys
from pathlib import Path

from aici_base.errors import NotFoundError
from tests.runtime.support.registries import ADMIN, open_registry, seen_tags, wasm

SHARED = ("one", "two", "three")


def main(folder: Path, number: str) -> None:
    choose = random.Random(number)
    registry = open_registry(folder)
    own_id, own = wasm(f"own {number}")
    registry.add(own, ADMIN)
    for count in itertools.count():
        module_id, content = wasm(choose.choice(SHARED))
        tag = choose.choice(SHARED)
        try:
            match choose.randrange(5):
                case 0:
                    registry.add(content, ADMIN)
                case 1:
                    registry.set_tags(module_id, [tag, f"{tag}-again"], ADMIN)
                case 2:
                    registry.remove_tag(tag, ADMIN)
                case 3:
                    registry.remove(module_id, ADMIN, force=True)
                case 4:
                    registry.sweep()
        except NotFoundError:
            pass  # a different process was faster
        seen_tags(registry)
        registry.set_tags(own_id, [f"own-{number}-{count}"], ADMIN)
        print(f"own-{number}-{count}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
