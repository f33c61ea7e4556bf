"""A fake of vLLM's scheduler and of the engine around it: the same calls in the same order, and a model that prefers
letters.

The calls are those of vLLM 0.32: `EngineCore.step` and `Scheduler`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from aici.vllm_scheduling import GuestScheduling
from aici_engine.vllm.row_engine import Words
from tests.engine.support import EOS, EOT, VOCAB_SIZE


@dataclass(eq=False)
class FakeRequest:
    request_id: str
    prompt_token_ids: list[int] | None
    sampling_params: Any
    output_token_ids: list[int] = field(default_factory=list)
    is_prefill_chunk: bool = False
    reason: str = ""
    num_computed: int = 0


def params(aici: object = None, **options: Any) -> Any:
    """vLLM's SamplingParams, as far as aici reads them."""
    given = {"max_tokens": 40, "seed": 0, "eos_token_id": int(EOS), "all_stop_token_ids": {int(EOT)}} | options
    return SimpleNamespace(extra_args=None if aici is None else {"aici": aici}, **given)


class FakeScheduler:
    """`chunk`: the most tokens of a prompt in a step."""

    def __init__(self, chunk: int = 4) -> None:
        self.requests: dict[str, FakeRequest] = {}
        self.grammar_compile_error_reqs: set[str] = set()
        self.chunk = chunk
        self.closed = False

    def add_request(self, request: FakeRequest) -> None:
        self.requests[request.request_id] = request

    def schedule(self) -> Any:
        scheduled = {}
        for request in self.requests.values():
            assert request.prompt_token_ids is not None
            all_tokens = len(request.prompt_token_ids) + len(request.output_token_ids)
            num_tokens = min(self.chunk, all_tokens - request.num_computed)
            request.num_computed += num_tokens
            request.is_prefill_chunk = request.num_computed < all_tokens
            scheduled[request.request_id] = num_tokens
        return SimpleNamespace(num_scheduled_tokens=scheduled)

    def get_grammar_bitmask(self, scheduler_output: Any) -> Any:
        return None

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> dict[str, list[int]]:
        given = {}
        for key, place in model_runner_output.req_id_to_index.items():
            if (request := self.requests.get(key)) is None:
                continue
            given[key] = tokens = model_runner_output.sampled_token_ids[place]
            request.output_token_ids.extend(tokens)
            ends = {request.sampling_params.eos_token_id, *request.sampling_params.all_stop_token_ids}
            if tokens and tokens[-1] in ends:
                self._end(request, "stop")
            elif len(request.output_token_ids) >= request.sampling_params.max_tokens:
                self._end(request, "length")
        self.finish_requests(set(self.grammar_compile_error_reqs), "error")
        self.grammar_compile_error_reqs.clear()
        return given

    def finish_requests(self, request_ids: Any, finished_status: Any) -> None:
        keys: Iterable[str] = [request_ids] if isinstance(request_ids, str) else request_ids
        for key in list(self.requests) if request_ids is None else keys:
            if key in self.requests:
                self._end(self.requests[key], finished_status)

    def get_num_unfinished_requests(self) -> int:
        return len(self.requests)

    def shutdown(self) -> None:
        self.closed = True

    def _end(self, request: FakeRequest, reason: str) -> None:
        request.reason = reason
        self._free_request(request)

    def _free_request(self, request: FakeRequest, delay_free_blocks: bool = False) -> None:
        del self.requests[request.request_id]


class ControlledFakeScheduler(GuestScheduling, FakeScheduler):
    def __init__(self, guests: Any, chunk: int = 4) -> None:
        FakeScheduler.__init__(self, chunk)
        self._guests = guests

    def _make_grammar_output(self, keys: list[str], rows: Words) -> Any:
        return SimpleNamespace(structured_output_request_ids=keys, grammar_bitmask=rows)


def run(scheduler: FakeScheduler, *, between: Callable[[int], None] = lambda step: None) -> list[dict[str, Words]]:
    """Step until no request is left. Return the masks of each step, by request.

    `between`: called before each step, with the number of steps that computed so far.
    """
    masks: list[dict[str, Words]] = []
    while scheduler.get_num_unfinished_requests():
        between(len(masks))
        output = scheduler.schedule()
        grammar = scheduler.get_grammar_bitmask(output)
        if not output.num_scheduled_tokens:
            continue
        rows = {}
        if grammar is not None:
            rows = dict(zip(grammar.structured_output_request_ids, grammar.grammar_bitmask, strict=True))
        sampled = [
            [] if scheduler.requests[key].is_prefill_chunk else [_choice(rows.get(key), len(masks))]
            for key in output.num_scheduled_tokens
        ]
        places = {key: place for place, key in enumerate(output.num_scheduled_tokens)}
        scheduler.update_from_output(output, SimpleNamespace(req_id_to_index=places, sampled_token_ids=sampled))
        masks.append(rows)
    return masks


def text(request: FakeRequest) -> str:
    """The output's text: a token is a byte."""
    return bytes(token for token in request.output_token_ids if token < 256).decode()


def _choice(mask: Words | None, step: int) -> int:
    """The first allowed token from a letter on that depends on the step."""
    preferred = [(ord("a") + step % 26 + k) % VOCAB_SIZE for k in range(VOCAB_SIZE)]
    if mask is None:
        return preferred[0]
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return next(token for token in preferred if bits[token])
