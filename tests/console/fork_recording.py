"""A recording of a controller that forks, without a model."""

import json
from pathlib import Path


def many_forks(folder: Path, *, forks: int, tokens: int) -> Path:
    """Write a recording, as the runtime writes one, of a controller that forks once."""
    ids = range(1, forks + 1)
    fine = {"error": "", "result": None, "storage": [], "logs": "", "micros": 9}
    forked = {**fine, "result": {"suspend": False, "num_forks": forks, "ff_tokens": []}}
    clones = [{"id": each, "clone_id": 1 if each > 1 else None} for each in ids]
    turns = [
        {"op": "instantiate", "req_id": "r", "prompt": [1], "module_arg": "", "seed": 0},
        {"op": "turn_process", "post_ops": [], "pre_ops": [{"id": 1, "req_id": "r"}], "ops": clones, "freed": []},
        *(
            {"op": "turn_process", "post_ops": [{"id": each, "tokens": [token], "backtrack": 0} for each in ids]}
            for token in range(tokens)
        ),
    ]
    answers = [fine, {"pre_seqs": {"1": forked}, "seqs": dict.fromkeys(ids, fine)}] + [{}] * tokens
    lines = [
        json.dumps({"suff": "", "cmd": turn, "resp": {"type": "ok", "data": answer}})
        for turn, answer in zip(turns, answers, strict=True)
    ]
    path = folder / "forks.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path
