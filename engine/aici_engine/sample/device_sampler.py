"""Sampler where the logits are: one round trip to the device gives a token for every row."""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Seq
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from aici_base.errors import AiciError, ControllerError
from aici_base.ids import TokenId
from aici_engine.config import SamplingParams
from aici_engine.device_copy import MaskCopy, copy_to_device
from aici_engine.events import TokenScore
from aici_engine.fusion import fused
from aici_engine.sample import torch_pipeline
from aici_engine.sample.masks import Bits, Logits
from aici_engine.sample.sampler import HostSampler, RowToSample, Sampler
from aici_engine.sample.torch_pipeline import BatchParams, TensorMasks
from aici_engine.sequences.sampler_state import Bias
from aici_engine.sequences.sequence import Sequence


class DeviceRow(NamedTuple):
    """Row `place` of `logits` (R, vocabulary) on the device."""

    logits: torch.Tensor
    place: int


class LaunchedTokens:
    """Tokens (R,) that the device has been told to choose."""

    def __init__(self, tokens: torch.Tensor) -> None:
        self.on_device = tokens
        self._here, self._arrival = tokens, None
        if tokens.is_cuda:
            # The copy is begun now, so that `read` does not wait for work that the device is told later.
            self._here = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
            self._here.copy_(tokens, non_blocking=True)
            self._arrival = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrival.record()

    def read(self) -> list[int]:
        """Wait for the tokens."""
        if self._arrival is not None:
            self._arrival.synchronize()
        found: list[int] = self._here.tolist()
        return found


Launched = Callable[[LaunchedTokens], None]


class DeviceSampler(Sampler[DeviceRow]):
    """Samples plain rows on the device. Rows with penalties, bans, log-probabilities or explanations are copied and go
    to `host`."""

    def __init__(self, host: HostSampler, masks: TensorMasks, device: torch.device) -> None:
        self._host = host
        self._masks = masks
        self._device = device
        self._mask_copy = MaskCopy(device)
        self._choose = fused(torch_pipeline.choose, device)
        self._choose_allowed = fused(torch_pipeline.choose_allowed, device)

    def rows(self, logits: torch.Tensor) -> Iterable[DeviceRow]:
        return [DeviceRow(logits, place) for place in range(len(logits))]

    def score(self, seq: Sequence, rows: Seq[DeviceRow]) -> None:
        self._host.score(seq, self._on_host(rows))

    def sample_batch(
        self, wanted: Seq[RowToSample[DeviceRow]], launched: Launched | None = None
    ) -> list[TokenScore | AiciError]:
        here = [each for each in wanted if _is_plain(each.seq)]
        others = [each for each in wanted if not _is_plain(each.seq)]
        tokens = LaunchedTokens(self.launch(here)) if here else None
        copies = self._on_host([each.row for each in others]) if others else []
        if launched is not None and tokens is not None and not others:
            launched(tokens)
        pairs = zip(others, copies, strict=True)
        theirs = iter(self._host.sample_batch([RowToSample(each.seq, row, each.bits) for each, row in pairs]))
        found = [] if tokens is None else tokens.read()
        ours = map(_result, found, (each.bits is not None for each in here))
        return [next(ours) if _is_plain(each.seq) else next(theirs) for each in wanted]

    # In inference mode, as the logits are: torch compiles anew for tensors of another kind.
    @torch.inference_mode()
    def launch(self, wanted: Seq[RowToSample[DeviceRow]]) -> torch.Tensor:
        """Return the tokens (R,) of `torch_pipeline.choose`. The device may still compute the numbers."""
        params = [each.seq.sampling for each in wanted]
        draws = [0 if each.seq.sampling.greedy else each.seq.sampler.random.getrandbits(64) for each in wanted]
        rows = self._biased([each.row for each in wanted], [each.seq.sampler.bias for each in wanted])
        return self._launch(rows, params, draws, [each.bits for each in wanted])

    @torch.inference_mode()
    def warm_up(self, num_logits: int, num_bytes: int) -> None:
        """Compile for rows of `num_logits` logits and masks of `num_bytes` bytes, so that no request waits for it.

        `num_bytes` 0: no masks."""
        logits = torch.zeros(3, num_logits, device=self._device)
        rows = [DeviceRow(logits, place) for place in range(3)]
        for params in (
            SamplingParams(temperature=0.0),
            SamplingParams(),
            SamplingParams(top_k=2),
            SamplingParams(top_p=0.5),
            SamplingParams(top_k=2, top_p=0.5),
        ):
            for bits in (None, np.full(num_bytes, 255, np.uint8))[: 1 + bool(num_bytes)]:
                # Two masks for three rows: torch takes sizes that are equal at first for sizes that always are.
                LaunchedTokens(self._launch(rows, [params] * 3, [0] * 3, [bits, bits, None])).read()

    def _launch(
        self, rows: list[DeviceRow], params: list[SamplingParams], draws: list[int], bits: list[Bits | None]
    ) -> torch.Tensor:
        num = len(rows)
        if num == 1:
            # A row twice: torch would compile once more for a size of 1.
            rows, params, draws, bits = rows * 2, params * 2, draws * 2, bits * 2
        batch = BatchParams.of(params, draws, num_logits=rows[0].logits.shape[1], device=self._device)
        masks = [each for each in bits if each is not None]
        if not masks:
            return self._choose(self._gather(rows), *batch)[:num]
        has_mask = np.fromiter((each is not None for each in bits), np.bool_, len(bits))
        mask_of = copy_to_device(np.where(has_mask, np.cumsum(has_mask) - 1, -1), self._device)
        there = self._mask_copy(masks if len(masks) > 1 else masks * 2)
        return self._choose_allowed(self._gather(rows), self._masks, there, mask_of, *batch)[:num]

    def _biased(self, rows: list[DeviceRow], biases: list[Bias | None]) -> list[DeviceRow]:
        """Return the rows with the biases added, in memory of their own if there are any."""
        some = [(place, bias) for place, bias in enumerate(biases) if bias is not None]
        if not some:
            return rows
        ids, values = (np.concatenate([bias[part] for _, bias in some]) for part in range(2))
        places = np.repeat([place for place, _ in some], [len(bias[0]) for _, bias in some])
        where = copy_to_device(np.stack([places, ids]), self._device).unbind()
        changed = self._gather(rows).index_put(where, copy_to_device(values, self._device), accumulate=True)
        return [DeviceRow(changed, place) for place in range(len(rows))]

    def _gather(self, rows: Seq[DeviceRow]) -> torch.Tensor:
        """Return the rows (R, vocabulary) as one tensor: a part of the logits where the rows stand together."""
        first = rows[0]
        places = [row.place for row in rows]
        assert all(row.logits is first.logits for row in rows), "rows of one step have one tensor"
        if places == list(range(first.place, first.place + len(rows))):
            return first.logits[first.place : first.place + len(rows)]
        return first.logits.index_select(0, copy_to_device(np.array(places, np.int64), self._device))

    def _on_host(self, rows: Seq[DeviceRow]) -> Seq[Logits]:
        copies: npt.NDArray[Any] = self._gather(rows).cpu().numpy()
        return list(copies.copy() if self._device.type == "cpu" else copies)


def _is_plain(seq: Sequence) -> bool:
    params = seq.sampling
    is_silent = params.logprobs is None and params.explain is None
    return is_silent and not (params.penalizes or params.bans)


def _result(token: int, masked: bool) -> TokenScore | AiciError:
    if token == torch_pipeline.NOT_FINITE:
        return AiciError("the model's logits are not finite")
    if token == torch_pipeline.NOTHING_ALLOWED:
        return ControllerError("the controller's mask allows no token") if masked else AiciError("no token is allowed")
    return TokenScore(TokenId(token))
