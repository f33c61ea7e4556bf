"""Operations of a step, counted by the kernels, against the sizes of the model."""

import pytest

from aici_engine.native import library
from aici_engine.native.bindings import Format
from aici_engine.native.thread_pool import ThreadPool
from aici_engine.native.work_profile import peak_rate, profile_work
from tests.engine.native.test_native_model import ABLE, SMALL, Sequence, module_of, native, whole

pytestmark = pytest.mark.skipif(not ABLE, reason="no kernels for this processor")


@pytest.mark.parametrize("num_threads", [1, 2])
def test_the_operations_of_a_step(num_threads: int) -> None:
    model, tokens = native(module_of("llama"), Format.INT8, num_threads=num_threads), 37
    with profile_work(model.pool) as profile:
        whole(model, Sequence(3, tokens))
    whole(model, Sequence(3, tokens))  # after the block, nothing is counted
    hidden, inner, layers, head_dim = (
        SMALL[name] for name in ("hidden_size", "intermediate_size", "num_hidden_layers", "head_dim")
    )
    queries, keys = (SMALL[name] * head_dim for name in ("num_attention_heads", "num_key_value_heads"))
    weights = hidden * (queries + 2 * keys) + queries * hidden + 3 * hidden * inner
    operations = {kind: work.operations for kind, work in profile.works.items()}
    assert operations == {
        "products": 2 * layers * weights * tokens,
        "head": 2 * hidden * 112 * tokens,  # 99 rows, padded to sixteens
        "attention": 4 * layers * queries * sum(range(1, tokens + 1)),
        "rest": 0,
    }
    assert all(work.seconds > 0 for work in profile.works.values())


@pytest.mark.parametrize("form", list(Format)[:4])
def test_a_plain_loop_has_a_rate(form: Format) -> None:
    assert peak_rate(ThreadPool(library.of_level(ABLE[-1]), 2), form, rounds=100) > 0
