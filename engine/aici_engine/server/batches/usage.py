"""The tokens of a batch, summed over its results."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import orjson


def usage_of(results: Iterable[bytes]) -> dict[str, Any]:
    """Return the usage in the form of OpenAI's batches. An error has no usage and counts nothing."""
    sums: Counter[str] = Counter()
    for text in results:
        body = (orjson.loads(text)["response"] or {}).get("body")
        usage = body.get("usage") if isinstance(body, dict) else None
        if usage is None:
            continue
        # Chats and completions have prompt_tokens and completion_tokens, responses input_tokens and output_tokens.
        sums["input"] += usage.get("input_tokens", usage.get("prompt_tokens", 0))
        sums["output"] += usage.get("output_tokens", usage.get("completion_tokens", 0))
        sums["cached"] += _detail(usage, ("input_tokens_details", "prompt_tokens_details"), "cached_tokens")
        sums["thought"] += _detail(usage, ("output_tokens_details", "completion_tokens_details"), "reasoning_tokens")
    return {
        "input_tokens": sums["input"],
        "input_tokens_details": {"cached_tokens": sums["cached"]},
        "output_tokens": sums["output"],
        "output_tokens_details": {"reasoning_tokens": sums["thought"]},
        "total_tokens": sums["input"] + sums["output"],
    }


def _detail(usage: dict[str, Any], names: tuple[str, ...], member: str) -> int:
    return sum((usage.get(name) or {}).get(member) or 0 for name in names)
