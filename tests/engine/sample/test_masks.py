"""Masks against the definition, bit by bit."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aici_base.ids import TokenId
from aici_engine.sample.masks import MaskApplier
from aici_engine.sample.native import NativeSampling


def bits_of(allowed: set[int], vocab_size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    size = 4 * ((vocab_size + 31) // 32)
    return np.frombuffer(sum(1 << token for token in allowed).to_bytes(size, "little"), np.uint8)


@given(
    described=st.integers(1, 80).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))),
    num_logits=st.integers(1, 120),
    other_eos=st.sets(st.integers(0, 119), max_size=3),
    eos=st.integers(0, 79),
)
def test_a_token_keeps_its_logit_or_loses_it(
    native: NativeSampling | None, described: tuple[int, set[int]], num_logits: int, other_eos: set[int], eos: int
) -> None:
    vocab_size, allowed = described
    applier = MaskApplier(
        vocab_size=vocab_size,
        eos_token=TokenId(eos),
        all_eos={TokenId(eos), *map(TokenId, other_eos)},
        num_logits=num_logits,
        close=native and native.mask,
    )
    row = np.arange(num_logits, dtype=np.float32)
    applier.apply(bits_of(allowed, vocab_size), row)
    eos_open = eos in allowed and eos < num_logits

    def is_open(token: int) -> bool:
        if token in other_eos and token != eos:
            return eos_open
        return token in allowed

    assert row.tolist() == [float(t) if is_open(t) else -np.inf for t in range(num_logits)]


def test_a_nan_of_the_model_is_not_taken_for_a_closed_mask(native: NativeSampling | None) -> None:
    close = native and native.mask
    applier = MaskApplier(vocab_size=3, eos_token=TokenId(0), all_eos={TokenId(0)}, num_logits=3, close=close)
    row = np.full(3, np.nan, np.float32)
    applier.apply(bits_of({1}, 3), row)
    assert np.isnan(row[1])
