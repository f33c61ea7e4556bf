"""The state of a pipeline, as an engine reports it."""

from typing import Any


def pipeline_status(**changes: Any) -> dict[str, Any]:
    """One stage and the driver. `changes` replace fields."""
    stage = {
        "address": "tcp://10.0.0.2:7000", "name": "far", "pid": 7, "first": 0, "last": 17, "device": "cpu",
        "cpu_level": "avx2", "memory_bytes": 8 << 30, "weight_bytes": 60_000_000, "page_bytes": 200_000,
        "max_pages": 1000, "read_bytes": 60_000_000, "sent_bytes": 0, "load_s": 0.5, "computed_s": 1.5, "waited_s": 0.5,
        "rtt_s": 0.001,
    }  # fmt: skip
    status = {
        "state": "ready", "trouble": "", "epoch": 3, "interruptions": 2, "depth": 2, "num_pages": 800, "page_size": 16,
        "num_steps": 500, "num_tokens": 900, "hop_s": 0.0007, "num_hop_steps": 100, "stages": [stage],
        "driver": {"first": 17, "last": 30, "weight_bytes": 70_000_000, "page_bytes": 150_000, "computed_s": 2.0},
    }  # fmt: skip
    return status | changes
