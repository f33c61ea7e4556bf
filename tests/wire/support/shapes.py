"""Check the shape common to all responses of a runtime."""

from typing import Any

from tests.wire.support.engine import Version

VOCAB = 261


def _is_token(value: Any, vocab: int = VOCAB) -> bool:
    return type(value) is int and 0 <= value < vocab


def check_envelope(response: Any, rid: str | None) -> None:
    if response["type"] == "json-error":
        assert set(response) == {"type", "error"}, response
        return
    assert response.get("$rid") == rid, response
    if response["type"] == "error":
        assert type(response["error"]) is str
        assert response["error"]
        assert type(response["is_user_error"]) is bool, response
    else:
        assert response["type"] == "ok", response
        assert "data" in response
    assert "internal error" not in str(response.get("error")), response


def check_entry(entry: Any) -> Any:
    """Check the entry of a sequence and return its result."""
    assert set(entry) == {"error", "result", "storage", "logs", "micros"}, entry
    assert type(entry["error"]) is str
    assert type(entry["logs"]) is str
    assert len(entry["logs"]) <= 140_000
    assert type(entry["micros"]) is int
    assert entry["micros"] >= 0
    assert entry["micros"] % 10 == 0
    for command in entry["storage"]:
        assert list(command) == ["WriteVar"], entry
    return entry["result"]


def check_mid(version: Version, data: Any, num_ops: int) -> None:
    if version == "v1":
        assert data["num_seqs"] == num_ops
        for entry in data["seqs"].values():
            result = check_entry(entry)
            assert result is None or (type(result["backtrack"]) is int and all(map(_is_token, result["ff_tokens"])))
        return
    for entry in data["seqs"].values():
        result = check_entry(entry)
        for branch in result["branches"] if result else ():
            assert branch["sample_mask"] is None or 0 <= branch["sample_mask"] < data["num_masks"], data
            for splice in branch["splices"]:
                assert type(splice["backtrack"]) is int
                assert splice["backtrack"] >= 0
                assert all(map(_is_token, splice["ff_tokens"]))
                assert all(map(_is_token, splice["when_sampled"]))


def check_post_pre(data: Any) -> None:
    for entry in data["post_seqs"].values():
        result = check_entry(entry)
        assert result is None or type(result["stop"]) is bool
    for entry in data["pre_seqs"].values():
        result = check_entry(entry)
        if result is not None:
            assert set(result) == {"suspend", "num_forks", "ff_tokens"}
            assert type(result["suspend"]) is bool
            assert 0 <= result["num_forks"] <= 16
            assert all(map(_is_token, result["ff_tokens"]))
