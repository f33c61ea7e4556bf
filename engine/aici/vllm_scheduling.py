"""Controllers in vLLM's scheduler, for `vllm serve`. Imports nothing of vLLM: in tests, a fake takes vLLM's place.

In each step, vLLM's engine calls the scheduler in this order:

    schedule                what to compute; then the forward pass begins
    get_grammar_bitmask     masks, a row of bits for each sequence with a mask; then vLLM samples
    update_from_output      sampled tokens

`schedule` asks the guests, which compute beside the model, and `get_grammar_bitmask` reads the masks. vLLM hands the
masks to the workers as masks of vLLM's own grammars: every device, every runner, and tensor and pipeline parallelism
work alike.
"""

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from aici.vllm_guests import ScheduledGuests
from aici.vllm_request import constraint_of
from aici_base.errors import AiciError
from aici_engine.vllm.row_engine import Words

_log = logging.getLogger(__name__)


if TYPE_CHECKING:

    class _VllmScheduler:
        """The parts of vLLM's Scheduler that the mix-in uses."""

        requests: dict[str, Any]
        grammar_compile_error_reqs: set[str]

        def add_request(self, request: Any) -> None: ...
        def schedule(self, *args: Any, **kwargs: Any) -> Any: ...
        def get_grammar_bitmask(self, scheduler_output: Any) -> Any: ...
        def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any: ...
        def finish_requests(self, request_ids: Any, finished_status: Any) -> Any: ...
        def get_num_unfinished_requests(self) -> int: ...
        def shutdown(self) -> None: ...
        def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any: ...
else:
    _VllmScheduler = object


class GuestScheduling(_VllmScheduler):
    """A mix-in before vLLM's Scheduler. `_guests`: see `ScheduledGuests`; set before the first request."""

    _guests: ScheduledGuests

    def add_request(self, request: Any) -> None:
        """Admit a request; one with a controller as soon as its guest has started."""
        try:
            constraint = constraint_of(getattr(request.sampling_params, "extra_args", None))
            if constraint is not None:
                self._guests.begin(request, constraint)
                return
        except AiciError as error:
            _log.warning("request %s is refused: %s", request.request_id, error)
            super().add_request(request)
            self.grammar_compile_error_reqs.add(request.request_id)
            return
        super().add_request(request)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        for request in self._guests.ready(patient=not super().get_num_unfinished_requests()):
            super().add_request(request)
        output = super().schedule(*args, **kwargs)
        if output.num_scheduled_tokens:
            # A part of a prompt samples no token.
            keys = [key for key in output.num_scheduled_tokens if not self.requests[key].is_prefill_chunk]
            self._guests.ask(keys)
        else:
            self._guests.flush()
        return output

    def get_grammar_bitmask(self, scheduler_output: Any) -> Any:
        own = super().get_grammar_bitmask(scheduler_output)
        masks = self._guests.masks()
        if not masks:
            return own
        keys, rows = list(masks), np.stack(list(masks.values()))
        if own is not None:
            keys = [*own.structured_output_request_ids, *keys]
            rows = np.concatenate([own.grammar_bitmask, rows])
        return self._make_grammar_output(keys, rows)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        failed = self._guests.failed()
        if failed:
            # vLLM ends these with the finish reason `error`. A token without a mask must not reach the client.
            for key in failed.keys() & model_runner_output.req_id_to_index.keys():
                model_runner_output.sampled_token_ids[model_runner_output.req_id_to_index[key]] = []
            self.grammar_compile_error_reqs.update(failed)
        return super().update_from_output(scheduler_output, model_runner_output)

    def finish_requests(self, request_ids: Any, finished_status: Any) -> Any:
        keys = [request_ids] if isinstance(request_ids, str) else request_ids
        for key in self._guests.starting() if keys is None else list(keys):
            request = self._guests.take_starting(key)
            if request is not None:
                super().add_request(request)
        return super().finish_requests(request_ids, finished_status)

    def get_num_unfinished_requests(self) -> int:
        return int(super().get_num_unfinished_requests()) + self._guests.num_starting

    def shutdown(self) -> None:
        self._guests.close()
        super().shutdown()

    def _make_grammar_output(self, keys: list[str], rows: Words) -> Any:
        """Return vLLM's GrammarOutput with a row of bits for each request of `keys`."""
        raise NotImplementedError

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self._guests.free(request.request_id)
        return super()._free_request(request, *args, **kwargs)
