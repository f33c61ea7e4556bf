"""A small process that tells which nodes Ray knows: the only file that imports Ray.

    python -m aici_engine.cluster.ray_watcher HOST:PORT

Ray ends every process that is connected to a node whose Ray has died, and so this process is not the engine's. Standard
output gets a line of JSON after each change: a list of nodes. Standard input takes lines of JSON, a list of claims; the
last line holds. The process ends when standard input closes.
"""

import json
import os
import sys
import warnings
from multiprocessing.connection import wait
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from aici_engine.cluster import ray_labels
from aici_engine.cluster.ray_start import MIB_RESOURCE

_EVERY_S = 2.0


def main() -> None:
    warnings.simplefilter("ignore")
    ray.init(address=sys.argv[1], namespace="aici", log_to_driver=False, configure_logging=False)
    group: PlacementGroup | None = None
    told, unread = "", b""
    while True:
        if (line := json.dumps(_members(ray.nodes()))) != told:
            print(line, flush=True)  # noqa: T201
            told = line
        if wait([0], _EVERY_S):
            if not (data := os.read(0, 1 << 16)):
                return
            *lines, unread = (unread + data).split(b"\n")
            if lines:
                if group is not None:
                    remove_placement_group(group)
                group = _claimed(json.loads(lines[-1]))


def _members(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the nodes with a daemon. A node whose Ray was started again is listed once, as it is now."""
    found: dict[str, dict[str, Any]] = {}
    for node in sorted(nodes, key=lambda node: bool(node["Alive"])):
        if (member := ray_labels.from_labels(node["Labels"])) is not None:
            name, address = member
            found[name] = {"name": name, "address": address, "is_gone": not node["Alive"]}
    return [found[name] for name in sorted(found)]


def _claimed(claims: list[dict[str, Any]]) -> PlacementGroup | None:
    """Reserve the claimed memory. A group that cannot be placed makes Ray's autoscaler start a machine."""
    if not claims:
        return None
    return placement_group(
        [{MIB_RESOURCE: claim["mib"]} for claim in claims],
        strategy="SPREAD",
        bundle_label_selector=[{} if claim["name"] is None else {ray_labels.NAME: claim["name"]} for claim in claims],
    )


if __name__ == "__main__":
    main()
