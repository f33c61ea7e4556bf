"""A process of a group: `python -m tests.cluster.tensor_parallel_tokens RANK NUM_RANKS STORE FOLDER...`.

Rank 0 prints the greedy tokens of every model as JSON.
"""

import json
import sys
from pathlib import Path

from aici_base.ids import SeqId, TokenId
from aici_engine.cache.ids import PageId
from aici_engine.cluster.rank_messages import RankSettings
from aici_engine.cluster.tensor_rank import join_group, leave_group, load_share
from aici_engine.model.load_stage import describe
from aici_engine.model.stage_model import StageModel
from aici_engine.model.tensor_source import FolderSource
from aici_engine.step_input import Chunk

PROMPT = [TokenId(token) for token in (5, 9, 4, 44, 12)]
NUM_TOKENS = 8


def greedy_tokens(stage: StageModel) -> list[int]:
    """Return the tokens after PROMPT. `stage`: a whole model."""
    storage, tokens, done = stage.make_storage(num_pages=4, page_size=16), list(PROMPT), 0
    for _ in range(NUM_TOKENS):
        chunk = Chunk(SeqId(1), tokens[done:], done, [PageId(3), PageId(1)], 1)
        [logits] = stage.run(storage, [chunk], None)
        done = len(tokens)
        tokens.append(TokenId(int(logits.argmax())))
    return [int(token) for token in tokens[len(PROMPT) :]]


def settings_of(source: FolderSource, *, num_ranks: int, store: str) -> RankSettings:
    return RankSettings(
        parent=0,
        num_ranks=num_ranks,
        store=store,
        first=0,
        last=describe(source).num_layers,
        embedding=True,
        head=True,
        dtype="float32",
        device="cpu",
        num_threads=1,
        config={},
        generation_config={},
        tensors={},
    )


def main(rank: int, num_ranks: int, store: str, folders: list[str]) -> None:
    found = {}
    for i, folder in enumerate(folders):
        source = FolderSource(Path(folder))
        settings = settings_of(source, num_ranks=num_ranks, store=f"{store}-{i}")
        join_group(settings, rank=rank)
        found[Path(folder).name] = greedy_tokens(load_share(source, settings, rank=rank))
        leave_group()
    if rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
