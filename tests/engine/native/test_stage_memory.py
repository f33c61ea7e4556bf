"""A stage reads its own tensors alone, and has about as many bytes in memory as it needs, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import transformers as tf

from aici_engine.model.load_stage import stage_tensors
from aici_engine.model.stage_range import LayerRange
from aici_engine.model.tensor_source import FolderSource
from tests.engine.model.test_models import build, pool

LARGE: dict[str, Any] = {
    "vocab_size": 8000, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 8,
    "num_key_value_heads": 8, "max_position_embeddings": 128, "tie_word_embeddings": False,
}  # fmt: skip
PROGRAM = """
import json, sys
from pathlib import Path
from aici_engine.model.stage_range import LayerRange
from aici_engine.model.tensor_source import FolderSource
from aici_engine.native.stage_backend import StageSpec, make_stage

def number(file, name):
    line = next(line for line in Path(file).read_text().splitlines() if line.startswith(name))
    return int(line.split()[1])

tiny, large, part, dtype, backend = json.loads(sys.argv[1])
part, spec = LayerRange(*part), StageSpec(dtype, backend, "cpu", 16, 1)
make_stage(FolderSource(Path(tiny)), LayerRange(0, 1, True, False), spec)  # imports, and what every first load needs
Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
read, resident = number("/proc/self/io", "rchar"), number("/proc/self/status", "VmRSS")
stage = make_stage(FolderSource(Path(large)), part, spec)
print(json.dumps([
    number("/proc/self/io", "rchar") - read,
    1024 * (number("/proc/self/status", "VmHWM") - resident),
    stage.weight_bytes,
]))
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    tiny, large = tmp_path_factory.mktemp("tiny"), tmp_path_factory.mktemp("large")
    build("llama").save_pretrained(tiny)
    tf.LlamaForCausalLM(tf.LlamaConfig(**LARGE)).save_pretrained(large, max_shard_size="40MB")
    return tiny, large


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux' /proc")
@pytest.mark.parametrize("backend", ["torch", "native"])
@pytest.mark.parametrize(
    "part", [LayerRange(0, 3, True, False), LayerRange(3, 6, False, False), LayerRange(6, 8, False, True)]
)
def test_a_stage_reads_and_holds_its_own_tensors(
    folders: tuple[Path, Path], part: LayerRange, backend: str, tmp_path: Path
) -> None:
    """`rchar` counts the bytes of all reads: a source copies from files, and maps none."""
    if backend == "native":
        pool()  # skips the test without kernels
    source = FolderSource(folders[1])
    own = sum(source.tensors[name].nbytes for name in stage_tensors(source, part))
    everything = sum(info.nbytes for info in source.tensors.values())
    bounds = [part.first, part.last, part.embedding, part.head]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([*map(str, folders), bounds, "float32", backend])],
        capture_output=True, text=True, check=True, env={**os.environ, "AICI_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    read, peak, weights = json.loads(done.stdout)
    print(f"{backend} {part}: read {read / own:.3f}, peak {peak / own:.3f}, weights {weights / own:.3f} of {own} bytes")
    assert own <= read <= 1.05 * own < everything
    assert weights <= 1.05 * own
    # The layout of the kernels is made while a few layers are in memory as they were stored.
    assert peak <= (1.25 * own if backend == "torch" else own + (128 << 20))


PACK = """
import json, sys
from pathlib import Path
from aici_engine.native.from_folder import load_folder

def number(name):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])

tiny, large, dtype = sys.argv[1:]
load_folder(Path(tiny), "int8")
Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
before = number("RssAnon")
packed = load_folder(Path(large), dtype)
print(json.dumps([number("VmHWM") - number("RssFile") - before, number("RssAnon") - before, packed.num_bytes]))
"""


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux' /proc")
@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_packing_needs_little_more_memory_than_the_packed_weights(
    folders: tuple[Path, Path], dtype: str, tmp_path: Path
) -> None:
    """As in models with large vocabularies, embedding and head make up most of the weights."""
    wide = tmp_path / "wide"
    config = {**LARGE, "vocab_size": 32_000, "num_hidden_layers": 2}
    tf.LlamaForCausalLM(tf.LlamaConfig(**config)).save_pretrained(wide)
    done = subprocess.run(
        [sys.executable, "-c", PACK, str(folders[0]), str(wide), dtype], capture_output=True, text=True, check=True
    )
    peak, after, packed = json.loads(done.stdout)
    print(f"{dtype}: peak {peak / packed:.2f}, after {after / packed:.2f} of {packed} bytes")
    assert after <= 1.2 * packed
    assert peak <= 1.2 * packed + (48 << 20)
