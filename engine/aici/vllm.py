r"""Controllers in `vllm serve`: a scheduler for vLLM, and a check of requests. Needs vLLM beside aici.

    vllm serve MODEL --no-async-scheduling \
        --scheduler-cls aici.vllm.ControlledScheduler --logits-processors aici.vllm:RequestCheck

A request names its constraint in `vllm_xargs`: `{"aici": "{\"regex\": \"[0-9]+\"}"}`.
"""

from pathlib import Path
from typing import Any

import vllm
from vllm.v1.core.sched.output import GrammarOutput
from vllm.v1.core.sched.scheduler import Scheduler as PlainScheduler
from vllm.v1.sample.logits_processor.interface import LogitsProcessor
from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsProcessor as LogitsProcessorV2

from aici.errors import UsageError
from aici.guest_runtime import GuestRuntime
from aici.vllm_guests import ScheduledGuests
from aici.vllm_request import check_sampling, constraint_of
from aici.vllm_scheduling import GuestScheduling
from aici_base.errors import AiciError
from aici_engine.vllm.llm_engine import check_version
from aici_engine.vllm.row_engine import Words


class ControlledScheduler(GuestScheduling, PlainScheduler):  # type: ignore[misc]
    """vLLM's scheduler, with controllers. vLLM makes it, in its engine's process.

    Raises UsageError for another version of vLLM and for settings that do not go with controllers.
    """

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        check_version(vllm.__version__)
        if vllm_config.scheduler_config.async_scheduling:
            raise UsageError(
                "a step of async scheduling begins before the tokens of the last step are known",
                hint="start vLLM with --no-async-scheduling",
            )
        if vllm_config.speculative_config is not None:
            raise UsageError("speculative decoding does not go with controllers", hint="leave out the draft model")
        super().__init__(vllm_config, *args, **kwargs)
        model = vllm_config.model_config
        self._guests = ScheduledGuests(
            lambda: _open_runtime(model.tokenizer or model.model, model.tokenizer_revision),
            num_logits=model.get_vocab_size(),
        )

    def _make_grammar_output(self, keys: list[str], rows: Words) -> GrammarOutput:
        return GrammarOutput(keys, rows, [0] * len(keys))


class RequestCheck(LogitsProcessor, LogitsProcessorV2):  # type: ignore[misc]
    """Refuses wrong requests with status 400, before they reach the scheduler. Changes no logits.

    The class has the interfaces of both of vLLM's model runners.
    """

    def __init__(self, *args: Any) -> None:
        """vLLM calls this with the arguments of either interface."""

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Raise ValueError, as vLLM wants, for a wrong constraint."""
        try:
            if constraint_of(sampling_params.extra_args) is not None:
                check_sampling(sampling_params)
        except AiciError as error:
            raise ValueError(f"{error} ({error.hint})" if error.hint else str(error)) from None

    def is_argmax_invariant(self) -> bool:
        return True

    def update_state(self, batch_update: Any) -> None: ...

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:  # noqa: ARG002
        return False

    def apply(self, logits: Any, ctx: Any = None) -> Any:  # noqa: ARG002
        return logits


def _open_runtime(name: str, revision: str | None) -> GuestRuntime:
    """Return a runtime over the tokenizer `name`: a folder, or a name in the hub's cache."""
    if Path(name).is_dir():
        return GuestRuntime(name, engine="vLLM")
    # Imported here: a folder needs no transformers.
    from transformers import AutoTokenizer

    return GuestRuntime(AutoTokenizer.from_pretrained(name, revision=revision), engine="vLLM")
