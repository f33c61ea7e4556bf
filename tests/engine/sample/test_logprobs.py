"""Log-probabilities in numpy and in the kernels, against the definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aici_base.errors import AiciError
from aici_base.ids import TokenId
from aici_engine.sample import logprobs
from aici_engine.sample.logprobs import LogSoftmax
from aici_engine.sample.native import NativeSampling
from aici_engine.sampling_params import MAX_LOGPROBS


@pytest.fixture(scope="module")
def log_softmax(native: NativeSampling | None) -> LogSoftmax:
    return logprobs.log_softmax if native is None else native.log_softmax


def test_equals_are_listed_in_the_order_of_the_vocabulary(log_softmax: LogSoftmax) -> None:
    row = np.array([1, 3, 2, 3, 3, -np.inf], np.float32)
    assert [token for token, _ in log_softmax(row, TokenId(0), 2).top_logprobs] == [1, 3]
    assert [token for token, _ in log_softmax(row, TokenId(0), 20).top_logprobs] == [1, 3, 4, 2, 0]
    assert [token for token, _ in log_softmax(np.ones(49152, np.float32), TokenId(0), 3).top_logprobs] == [0, 1, 2]


@pytest.mark.parametrize("bad", [[-np.inf, -np.inf], [np.nan, 1.0], [np.inf, 0.0]])
def test_logits_that_are_not_finite_are_an_error(log_softmax: LogSoftmax, bad: list[float]) -> None:
    with pytest.raises(AiciError, match="not finite"):
        log_softmax(np.array(bad, np.float32), TokenId(0), 1)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_they_are_those_of_f64(log_softmax: LogSoftmax, data: st.DataObject) -> None:
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32), "seed"))
    row = data.draw(st.sampled_from([0.01, 4.0, 20.0])) * generator.standard_normal(data.draw(st.integers(1, 6000)))
    row = row.astype(np.float32)
    if data.draw(st.booleans(), "equals"):
        row = row.round()
    row[generator.random(len(row)) < data.draw(st.sampled_from([0.0, 0.5, 0.99]), "closed")] = -np.inf
    token, k = generator.integers(len(row)), data.draw(st.integers(0, MAX_LOGPROBS))
    row[token] = 0.5
    exact = row.astype(np.float64)
    wanted = exact - exact.max() - np.log(np.exp(exact - exact.max()).sum())
    found = log_softmax(row, TokenId(int(token)), k)
    assert found.token_id == token
    assert found.logprob == pytest.approx(wanted[token], abs=1e-6, rel=0)
    likeliest = [each for each in np.argsort(-row, kind="stable") if row[each] > -np.inf][:k]
    assert [each for each, _ in found.top_logprobs] == likeliest
    assert [logprob for _, logprob in found.top_logprobs] == pytest.approx(wanted[likeliest], abs=1e-6, rel=0)
