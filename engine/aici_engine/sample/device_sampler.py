"""Sampler where the logits are: one round trip to the device gives a token for every row."""

from collections.abc import Iterable
from collections.abc import Sequence as Seq

import numpy as np
import torch

from aici_base.errors import AiciError, ControllerError
from aici_base.ids import TokenId
from aici_engine.device_copy import copy_to_device
from aici_engine.events import TokenScore
from aici_engine.sample import torch_pipeline
from aici_engine.sample.masks import Logits
from aici_engine.sample.sampler import HostSampler, RowToSample, Sampler
from aici_engine.sample.torch_pipeline import BatchParams, TensorMasks
from aici_engine.sequences.sequence import Sequence


class DeviceSampler(Sampler[torch.Tensor]):
    """Samples plain rows on the device. Rows with a bias, penalties, bans, log-probabilities or explanations are
    copied and go to `host`."""

    def __init__(self, host: HostSampler, masks: TensorMasks, device: torch.device) -> None:
        self._host = host
        self._masks = masks
        self._device = device

    def rows(self, logits: torch.Tensor) -> Iterable[torch.Tensor]:
        return logits.unbind()

    def score(self, seq: Sequence, rows: Seq[torch.Tensor]) -> None:
        self._host.score(seq, _on_host(rows))

    def sample_batch(self, wanted: Seq[RowToSample[torch.Tensor]]) -> list[TokenScore | AiciError]:
        here = [each for each in wanted if _is_plain(each.seq)]
        tokens = self.launch(here) if here else torch.empty(0)
        others = [each for each in wanted if not _is_plain(each.seq)]
        copies = _on_host([each.row for each in others]) if others else []
        pairs = zip(others, copies, strict=True)
        theirs = iter(self._host.sample_batch([RowToSample(each.seq, row, each.bits) for each, row in pairs]))
        ours = map(_result, tokens.tolist(), (each.bits is not None for each in here))
        return [next(ours) if _is_plain(each.seq) else next(theirs) for each in wanted]

    def launch(self, wanted: Seq[RowToSample[torch.Tensor]]) -> torch.Tensor:
        """Return the tokens (R,) of `torch_pipeline.choose`. The device may still compute the numbers."""
        rows = torch.stack([each.row for each in wanted])
        params = [each.seq.sampling for each in wanted]
        draws = [0 if each.seq.sampling.greedy else each.seq.sampler.random.getrandbits(64) for each in wanted]
        masks = {place: each.bits for place, each in enumerate(wanted) if each.bits is not None}
        if masks:
            places = copy_to_device(np.fromiter(masks, np.int64), self._device)
            is_open = self._masks.is_open(copy_to_device(np.stack(list(masks.values())), self._device))
            rows[places] = rows[places].masked_fill(~is_open, -torch.inf)
        return torch_pipeline.choose(rows, BatchParams.of(params, draws, num_logits=rows.shape[1], device=self._device))


def _on_host(rows: Seq[torch.Tensor]) -> Seq[Logits]:
    copies: Logits = torch.stack(list(rows)).cpu().numpy()
    return list(copies)


def _is_plain(seq: Sequence) -> bool:
    params = seq.sampling
    is_silent = params.logprobs is None and params.explain is None
    return is_silent and seq.sampler.bias is None and not (params.penalizes or params.bans)


def _result(token: int, masked: bool) -> TokenScore | AiciError:
    if token == torch_pipeline.NOT_FINITE:
        return AiciError("the model's logits are not finite")
    if token == torch_pipeline.NOTHING_ALLOWED:
        return ControllerError("the controller's mask allows no token") if masked else AiciError("no token is allowed")
    return TokenScore(TokenId(token))
