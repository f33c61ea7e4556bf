"""Layers compiled by torch: the same logits, and one compilation for all layers.

The compiler here only traces, because a real one needs a GPU, or minutes.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from aici_base.ids import SeqId
from aici_engine.config import SamplingParams
from aici_engine.fusion import can_fuse, fused
from aici_engine.model.fused_layers import fuse_layers
from aici_engine.model.load import adopt, register
from aici_engine.sample import torch_pipeline
from aici_engine.sample.torch_pipeline import BatchParams, TensorMasks
from tests.engine.model.test_flash_attention import GPU
from tests.engine.model.test_models import NEAR, Runner, build, sequences


class Tracer:
    """A backend of torch.compile that runs what was traced. `num_graphs`: compilations so far."""

    def __init__(self) -> None:
        self.num_graphs = 0

    def __call__(self, module: Any, _inputs: Any) -> Any:
        self.num_graphs += 1
        return module.forward


@pytest.fixture(autouse=True)
def _compiler() -> Iterator[None]:
    """Leave the settings of torch's compiler, and the registry of transformers, as they were."""
    torch._dynamo.reset()
    settings: Any = torch._dynamo.config
    with settings.patch(suppress_errors=settings.suppress_errors, specialize_float=settings.specialize_float):
        yield
    register()
    torch._dynamo.reset()


@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral", "gemma3", "phi3"])
def test_layers_share_what_is_compiled(family: str) -> None:
    tracer = Tracer()
    plain, other = (adopt(build(family), eos_tokens=frozenset()) for _ in range(2))
    fuse_layers(other.module, backend=tracer)
    torch._dynamo.config.suppress_errors = False
    wanted, found, counts = Runner(plain), Runner(other), []
    # A prompt, one token, another prompt, and a mixed step: after the first two, nothing is compiled any more.
    for work in ([(1, 0, 9)], [(1, 9, 10)], [(2, 0, 5)], [(1, 10, 11), (2, 5, 12)], [(1, 11, 12)]):
        step = [(SeqId(number), sequences()[3], start, end) for number, start, end in work]
        torch.testing.assert_close(found.step(step), wanted.step(step), **NEAR)
        counts.append(tracer.num_graphs)
    assert counts[1] == counts[-1]
    # Layers with a window and layers without may need their own; more layers need no more.
    assert 2 * 4 <= counts[1] <= 2 * 10


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_sampling_is_one_graph(temperature: float) -> None:
    cpu, tracer = torch.device("cpu"), Tracer()
    masks = TensorMasks(vocab_size=90, eos_token=3, all_eos=[3, 7], num_logits=97, device=cpu)  # type: ignore[arg-type]
    choose = torch.compile(torch_pipeline.choose_allowed, backend=tracer, dynamic=True, fullgraph=True)
    generator = torch.Generator().manual_seed(0)
    for num in (3, 5, 2, 9):
        rows = torch.randn(num, 97, generator=generator)
        bits = torch.randint(0, 256, (2, 12), generator=generator, dtype=torch.uint8)
        mask_of = torch.arange(num) % 3 - 1
        params = BatchParams.of(
            [SamplingParams(temperature=temperature)] * num, list(range(num)), num_logits=97, device=cpu
        )
        wanted = torch_pipeline.choose_allowed(rows, masks, bits, mask_of, *params)
        assert torch.equal(choose(rows, masks, bits, mask_of, *params), wanted)
    assert tracer.num_graphs == 1


def test_on_the_cpu_nothing_is_compiled() -> None:
    assert not can_fuse(torch.device("cpu"))
    assert fused(torch_pipeline.choose, torch.device("cpu")) is torch_pipeline.choose


@GPU
def test_on_a_gpu_fused_layers_give_nearly_the_same() -> None:
    device = torch.device("cuda")
    plain, other = (adopt(build("llama"), eos_tokens=frozenset(), device=device) for _ in range(2))
    fuse_layers(other.module)
    wanted, found = Runner(plain), Runner(other)
    for start, end in ((0, 9), (9, 10), (10, 14)):
        step = [(SeqId(1), sequences()[3], start, end)]
        torch.testing.assert_close(found.step(step), wanted.step(step), atol=1e-3, rtol=1e-3)
