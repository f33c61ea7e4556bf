"""Digests of a model's tensors, and tensors kept by their digests."""

import hashlib
import itertools
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aici_base.errors import UnavailableError, UsageError
from aici_engine.model.load_stage import load_stage, stage_tensors
from aici_engine.model.manifest import NamedDigest, manifest, model_digest
from aici_engine.model.stage_model import LayerRange
from aici_engine.model.tensor_source import FolderSource, TensorInfo, read_header
from aici_engine.model.tensor_store import GatheredSource, TensorStore, belongs_by_name
from tests.engine.model.test_models import FAMILIES, build
from tests.engine.model.test_stages import ranges, run_stages


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICI_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def source(tmp_path: Path) -> FolderSource:
    build("llama").save_pretrained(tmp_path / "model", max_shard_size="100KB")
    return FolderSource(tmp_path / "model")


class CountedSource(FolderSource):
    num_bytes = 0

    def read_bytes(self, name: str, start: int, count: int) -> bytes:
        found = super().read_bytes(name, start, count)
        self.num_bytes += len(found)
        return found


def wanted_of(source: FolderSource, names: list[str]) -> dict[str, NamedDigest]:
    return {name: NamedDigest(source.tensors[name], digest) for name, digest in manifest(source, names).items()}


def fill(store: TensorStore, source: FolderSource, wanted: dict[str, NamedDigest], *, piece: int = 1000) -> None:
    for name, each in wanted.items():
        with store.receive(each) as file:
            for start in range(0, each.info.nbytes, piece):
                file.write(source.read_bytes(name, start, piece))


def test_a_folder_reads_what_transformers_wrote(source: FolderSource) -> None:
    assert len({source.file_of(name) for name in source.tensors}) > 1
    wanted = build("llama").state_dict()
    for name in source.tensors:
        assert torch.equal(torch.as_tensor(source.read(name)), wanted[name])
    assert set(source.tensors) == set(wanted)


def test_digests_are_those_of_the_bytes_and_are_kept(source: FolderSource, tmp_path: Path) -> None:
    found = manifest(source)
    for name, digest in found.items():
        content = source.read(name).tobytes()
        assert digest == hashlib.sha256(content).hexdigest()
    again = CountedSource(source.folder)
    assert manifest(again) == found
    assert again.num_bytes == 0
    name = next(iter(found))
    path = source.file_of(name)
    os.utime(path, ns=(0, 0))  # another modification time: only this file is hashed again
    assert manifest(again) == found
    in_file = [info.nbytes for info, _ in read_header(path).values()]
    assert again.num_bytes == sum(in_file)
    [cached] = (tmp_path / "cache" / "digests").iterdir()
    cached.write_text(json.dumps({path.name: {"state": 3}, "other": [1]}))
    assert manifest(source) == found


@pytest.mark.parametrize(
    "entry",
    [
        {"shape": [math.inf, 64], "data_offsets": [0, 256]},
        {"shape": [-1, -64], "data_offsets": [0, 256]},
        {"shape": [True, 64], "data_offsets": [0, 256]},
        {"shape": [1, 64], "data_offsets": [0.5, 256.5]},
    ],
)
def test_sizes_of_a_header_are_whole_numbers(tmp_path: Path, entry: dict[str, Any]) -> None:
    header = json.dumps({"w": {"dtype": "F32", **entry}}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(512))
    with pytest.raises(UsageError, match="a size of w is no whole number"):
        read_header(path)


def test_a_changed_weight_changes_the_digest_of_the_model(source: FolderSource, tmp_path: Path) -> None:
    before = model_digest(source)
    assert model_digest(FolderSource(source.folder)) == before
    module = build("llama")
    module.model.norm.weight.data[0] += 1
    module.save_pretrained(tmp_path / "other", max_shard_size="100KB")
    assert model_digest(FolderSource(tmp_path / "other")) != before


def test_a_stage_of_received_tensors_computes_the_same_bits(source: FolderSource, tmp_path: Path) -> None:
    parts, store = ranges(4, [2]), TensorStore()
    wanted = [wanted_of(source, stage_tensors(source, part)) for part in parts]
    stages = []
    for part, names in zip(parts, wanted, strict=True):
        gathered = GatheredSource(source.config, source.generation_config, names, store=store)
        assert gathered.missing == list(names)
        fill(store, source, names)
        gathered.refresh()
        assert gathered.missing == []
        stages.append(load_stage(gathered, part, dtype="float32"))
    there = [load_stage(source, part, dtype="float32") for part in parts]
    for one, other in zip(run_stages(there), run_stages(stages), strict=True):
        assert torch.equal(one, other)


def test_tensors_of_a_folder_are_taken_by_name_and_content(source: FolderSource, tmp_path: Path) -> None:
    module = build("llama")
    module.model.layers[0].mlp.up_proj.weight.data[0] += 1
    module.save_pretrained(tmp_path / "almost")
    wanted = wanted_of(source, stage_tensors(source, LayerRange(0, 2, True, False)))
    gathered = GatheredSource(
        source.config,
        source.generation_config,
        wanted,
        store=TensorStore(),
        folders=[FolderSource(tmp_path / "almost")],
    )
    assert gathered.missing == ["model.layers.0.mlp.up_proj.weight"]
    fill(TensorStore(), source, {name: wanted[name] for name in gathered.missing})
    gathered.refresh()
    for name in wanted:
        assert np.array_equal(gathered.read(name), source.read(name))
        assert gathered.read_bytes(name, 5, 9) == source.read_bytes(name, 5, 9)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tensors_of_a_layer_have_its_number_in_their_names(family: str, tmp_path: Path) -> None:
    build(family).save_pretrained(tmp_path)
    source = FolderSource(tmp_path)
    for section in (LayerRange(1, 2, False, False), LayerRange(0, 0, True, False), LayerRange(0, 0, True, True)):
        names = stage_tensors(source, section)
        assert names
        assert all(belongs_by_name(name, section) for name in names)


def test_another_plan_does_not_change_the_identity_of_a_layer(source: FolderSource) -> None:
    plans = [
        GatheredSource(
            source.config, {}, wanted_of(source, stage_tensors(source, LayerRange(*part))), store=TensorStore()
        )
        for part in ((0, 2, True, False), (1, 4, False, True))
    ]
    first, second = LayerRange(1, 2, False, False), LayerRange(2, 3, False, False)
    assert plans[0].identity(first) == plans[1].identity(first) != plans[1].identity(second)
    assert plans[0].identity() != plans[1].identity()


@given(content=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300)), damage=st.integers(0, 400))
def test_only_the_right_bytes_get_a_name(
    content: bytes, cuts: list[int], damage: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = TensorStore(tmp_path_factory.mktemp("store"))
    wanted = NamedDigest(TensorInfo("U8", (len(content),)), hashlib.sha256(content).hexdigest())
    sent = bytearray(content)
    if damage < len(sent):
        sent[damage] ^= 1
    elif damage > 350:
        sent += b"x"
    bounds = [0, *sorted(cuts), max(300, len(sent))]
    try:
        with store.receive(wanted) as file:
            for start, end in itertools.pairwise(bounds):
                file.write(sent[start:end])
        assert sent == content
    except UsageError:
        assert sent != content
    assert store.has(wanted) == (sent == content)
    assert len(list(store.folder.iterdir())) == (sent == content)


@pytest.mark.parametrize(
    "wanted",
    [
        NamedDigest(TensorInfo("F32", (2,)), "../../etc/passwd"),
        NamedDigest(TensorInfo("F32", (2,)), "A" * 64),
        NamedDigest(TensorInfo("F32", (2,)), "a" * 64 + "\n"),
        NamedDigest(TensorInfo("object", (2,)), "a" * 64),
        NamedDigest(TensorInfo("F32", (-2,)), "a" * 64),
        NamedDigest(TensorInfo("F32", (1 << 40, 1 << 40)), "a" * 64),
    ],
)
def test_what_no_tensor_is_called_is_refused(wanted: NamedDigest, tmp_path: Path) -> None:
    store = TensorStore(tmp_path / "store")
    with pytest.raises(UsageError):
        store.receive(wanted)
    with pytest.raises(UsageError):
        GatheredSource({}, {}, {"a": wanted}, store=store)
    assert not store.folder.exists()


def test_tensors_unused_for_a_month_go(source: FolderSource) -> None:
    store = TensorStore()
    wanted = wanted_of(source, list(source.tensors))
    fill(store, source, wanted)
    abandoned = store.folder / f".{'a' * 64}.1-0.tmp"
    abandoned.write_bytes(b"")
    old = time.time() - 31 * 24 * 3600
    for path in store.folder.iterdir():
        os.utime(path, (old, old))
    kept = dict(list(wanted.items())[:3])
    store.make_room(kept.values())
    assert {path.name for path in store.folder.iterdir()} == {each.sha256 for each in kept.values()}


def test_what_the_disk_has_no_room_for_is_refused_before_it_is_sent(source: FolderSource) -> None:
    huge = NamedDigest(TensorInfo("F32", (1 << 36,)), "a" * 64)
    with pytest.raises(UnavailableError, match="GB free: the tensors of this stage take 274\\.9 GB"):
        TensorStore().make_room([huge])


@pytest.mark.parametrize("damage", ["short", "header", "offsets", "type", "empty"])
def test_a_damaged_file_is_refused_with_its_name(damage: str, source: FolderSource) -> None:
    path = source.file_of("model.norm.weight")
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    if damage == "offsets":
        header["model.norm.weight"]["data_offsets"][1] += 4
    elif damage == "type":
        header["model.norm.weight"]["dtype"] = "F33"
    text = json.dumps(header).encode()
    path.write_bytes(
        {
            "short": content[:-1],
            "header": (1 << 60).to_bytes(8, "little") + content[8:],
            "empty": b"",
        }.get(damage, len(text).to_bytes(8, "little") + text + content[8 + length :])
    )
    with pytest.raises(UsageError, match=path.name):
        FolderSource(source.folder)
