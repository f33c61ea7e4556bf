"""The figures of an engine, as an engine reports them."""


def engine_stats(**changes: float) -> dict[str, float]:
    """An engine with one running sequence. `changes` replace fields."""
    return {
        "active_requests": 1, "waiting_requests": 0, "total_requests": 3, "cache_usage": 0.25, "tokens_generated": 10,
        "num_preemptions": 0, "cached_tokens": 5, "guest_cpu_seconds": 0.5, "num_pages": 80, "num_steps": 4,
        "step_seconds": 0.4, "forward_seconds": 0.3, "drafted_tokens": 6, "accepted_tokens": 3,
    } | changes  # fmt: skip
