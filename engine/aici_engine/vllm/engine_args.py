"""Flags of `vllm serve`, and the settings of vLLM that aici sets."""

from collections.abc import Sequence
from typing import Any, Final

from aici_base.errors import UsageError
from aici_engine.config import EngineConfig
from aici_engine.sampling_params import MAX_LOGPROBS

_OURS: Final = {
    "scheduler_cls": None,
    "async_scheduling": None,
    "max_num_seqs": "--max-num-seqs",
    "max_model_len": "--max-context",
    "dtype": "--dtype",
    "enable_prefix_caching": "--no-prefix-cache",
}
"""Settings of vLLM that aici sets, and the flag of `aici serve` for each."""

_SCHEDULER: Final = "aici_engine.vllm.stepped_scheduler.SteppedScheduler"


def engine_args(config: EngineConfig, args: Sequence[str]) -> Any:
    """Return vLLM's EngineArgs. Raises UsageError for wrong flags, and for settings that do not go with controllers."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = EngineArgs.add_cli_args(FlexibleArgumentParser(prog="--engine-args", exit_on_error=False))
    parser.error = _raise_usage
    model = str(config.model_dir)
    if any(arg.split("=")[0] == "--model" for arg in args):
        raise UsageError("--engine-args names a model", hint="use --model of `aici serve`")
    given = EngineArgs.from_cli_args(parser.parse_args([*args, "--model", model]))
    plain = EngineArgs(model=model)
    for name, flag in _OURS.items():
        if getattr(given, name) != getattr(plain, name):
            hint = f"use {flag} of `aici serve`" if flag else "leave it out"
            raise UsageError(f"--engine-args sets {name}, which aici sets", hint=hint)
    for name in ("speculative_config", "enable_lora"):
        if getattr(given, name):
            raise UsageError(f"--engine-args: {name} does not go with aici", hint="leave it out")
    if given.data_parallel_size != 1:
        raise UsageError("--engine-args: data_parallel_size is not served", hint="start one server for every engine")
    given.scheduler_cls, given.async_scheduling = _SCHEDULER, False
    given.max_num_seqs = config.max_num_seqs
    given.max_model_len = config.max_context
    given.dtype = config.dtype
    given.enable_prefix_caching = config.prefix_cache
    given.max_logprobs = MAX_LOGPROBS
    given.disable_log_stats = True
    return given


def _raise_usage(message: str) -> None:
    raise UsageError(f"--engine-args: {message}", hint="`vllm serve --help` lists the flags")
