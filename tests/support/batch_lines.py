"""Lines of batches, and their results."""

import json
from typing import Any

Json = dict[str, Any]


def chat_line(custom_id: str, content: str = "Hello", **body: Any) -> Json:
    messages = [{"role": "user", "content": content}]
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"messages": messages, "max_tokens": 2, **body},
    }


def jsonl(*lines: Json) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def results(text: bytes) -> dict[str, Json]:
    """Return results by custom_id. Every line is whole, and no custom_id comes twice."""
    *lines, rest = text.split(b"\n")
    assert rest == b""
    found = [json.loads(line) for line in lines]
    by_id = {each["custom_id"]: each for each in found}
    assert len(by_id) == len(found)
    return by_id
