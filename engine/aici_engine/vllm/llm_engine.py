"""vLLM's engine in this process, step by step.

vLLM's engine calls `schedule` of the scheduler before a forward pass, and `get_grammar_bitmask` after the pass has
begun. A subclass of the scheduler asks for masks there. vLLM hands the masks to the workers as masks of vLLM's own
grammars, so workers in other processes and on other machines need nothing of aici.
"""

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from aici_base.errors import UnavailableError, UsageError
from aici_base.ids import TokenId
from aici_engine.config import EngineConfig
from aici_engine.events import TokenScore
from aici_engine.model_files import read_settings
from aici_engine.sampling_params import SamplingParams
from aici_engine.vllm.engine_args import engine_args
from aici_engine.vllm.row_engine import NewRow, RowToken, Words

VERSIONS: Final = ("0.32",)
"""The tested versions of vLLM. vLLM's interface for schedulers may change with each version."""

_STEP_TIMEOUT: Final = "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"
_STEP_TIMEOUT_S: Final = 20
"""vLLM waits this long for a worker in a step. By itself, vLLM waits 300 s, here for the first step only, which may
compile."""


class LlmEngine:
    """Implements `RowEngine`. `args`: flags of `vllm serve`, as on a command line.

    Raises UnavailableError without vLLM, and UsageError for another version, wrong flags, or settings that do not go
    with controllers.
    """

    def __init__(self, config: EngineConfig, args: Sequence[str]) -> None:
        if find_spec("vllm") is None:
            raise UnavailableError(
                "vllm is not installed: it is needed for --engine vllm",
                hint="name an environment with vLLM and aici: --engine-python PATH",
            )
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the scheduler in this process, the workers anywhere
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        if config.num_threads is not None:
            os.environ["OMP_NUM_THREADS"] = str(config.num_threads)
        # Imported here: vLLM is not among aici's packages, and reads the environment when it is imported.
        import vllm

        check_version(vllm.__version__)
        from vllm.v1.engine.llm_engine import LLMEngine

        from aici_engine.vllm.stepped_scheduler import Hooks

        self._hooks = Hooks()
        self._engine = LLMEngine.from_engine_args(engine_args(config, args))
        settings = self._engine.vllm_config
        self.context = settings.model_config.max_model_len
        self.num_logits = settings.model_config.get_vocab_size()
        self.num_pages = int(settings.cache_config.num_gpu_blocks or 0)
        self.is_elsewhere = settings.parallel_config.distributed_executor_backend != "uni"
        self.eos_tokens = _eos_tokens(config.model_dir, settings.model_config.hf_config)
        self._eos = sorted(self.eos_tokens)
        core = self._engine.engine_core.engine_core
        # With pipeline parallelism, vLLM schedules a batch before the tokens of the last batch are known. Guests of all
        # rows are asked in one round, so one batch is computed at a time.
        core.batch_queue, core.step_fn = None, core.step
        self._scheduler = core.scheduler
        self._scheduler.hooks = self._hooks
        self._executor = core.model_executor
        if settings.parallel_config.pipeline_parallel_size > 1:
            # Without compilation, vLLM's stages make their buffers for hidden states in a dummy batch only.
            self._executor.execute_dummy_batch()
        self._take_first_step()
        _lower_step_timeout()

    @property
    def usage(self) -> float:
        return float(self._scheduler.get_kv_cache_usage())

    @property
    def num_preemptions(self) -> int:
        return self._hooks.num_preemptions

    def add(self, row: NewRow) -> None:
        prompt: dict[str, Any] = {"prompt_token_ids": list(row.tokens)}
        if row.salt is not None:
            prompt["cache_salt"] = row.salt
        name = self._engine.add_request(row.key, prompt, self._params(row))
        self._hooks.keys[name] = row.key

    def remove(self, key: str) -> None:
        self._engine.abort_request([key])
        self._hooks.forget(key)

    def step(self, ask: Callable[[list[str]], None], masks: Callable[[], Mapping[str, Words]]) -> list[RowToken]:
        self._hooks.ask, self._hooks.masks = ask, masks
        tokens = []
        for output in self._engine.step():
            tokens += [_row_token(output, place) for place in range(len(output.outputs[0].token_ids))]
            if output.finished:
                self._hooks.forget(output.request_id)
        return tokens

    def check_health(self) -> None:
        self._executor.check_health()

    def close(self) -> None:
        with contextlib.suppress(Exception):  # a worker may be dead
            self._engine.engine_core.shutdown()

    def _take_first_step(self) -> None:
        """Compute a prompt of two tokens and one more token: torch may compile a function at its first call."""
        tokens = [TokenId(0)] * 2
        row = NewRow(
            key="first", tokens=tokens, room=2, sampling=SamplingParams(), seed=None, salt=None, is_controlled=True
        )
        self.add(row)
        while self._engine.has_unfinished_requests():
            self.step(lambda _: None, dict)

    def _params(self, row: NewRow) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        given = row.sampling
        eos = [] if row.is_controlled or given.ignore_eos else self._eos
        return SamplingParams(
            temperature=0.0 if given.greedy else given.temperature,
            top_k=given.top_k,
            top_p=given.top_p,
            min_p=given.min_p,
            repetition_penalty=given.repetition_penalty,
            presence_penalty=given.presence_penalty,
            frequency_penalty=given.frequency_penalty,
            seed=row.seed,
            max_tokens=row.room,
            min_tokens=min(given.min_tokens, row.room),
            ignore_eos=True,  # the tokens of `eos` end the row, or the guest
            stop_token_ids=[*eos, *given.stop_token_ids],
            logit_bias={int(token): bias for token, bias in given.logit_bias.items()} or None,
            logprobs=given.logprobs,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )


def _lower_step_timeout() -> None:
    """Let vLLM notice a dead worker earlier, unless the environment says when."""
    import vllm.envs

    # vLLM reads its environment once.
    vllm.envs.disable_envs_cache()
    os.environ.setdefault(_STEP_TIMEOUT, str(_STEP_TIMEOUT_S))
    vllm.envs.enable_envs_cache()


def check_version(version: str) -> None:
    """Raise UsageError for a version of vLLM that aici was not tested with."""
    if not version.startswith(tuple(f"{each}." for each in VERSIONS)):
        raise UsageError(
            f"aici goes with vLLM {' and '.join(VERSIONS)}, not with {version}",
            hint=f"pip install 'vllm=={VERSIONS[-1]}.*'",
        )


def _eos_tokens(folder: Path, hf_config: Any) -> frozenset[TokenId]:
    """Return the EOS tokens: generation_config.json may name several, config.json names one."""
    ids = read_settings(folder / "generation_config.json").get("eos_token_id", getattr(hf_config, "eos_token_id", None))
    return frozenset(TokenId(int(each)) for each in (ids if isinstance(ids, list) else [ids]) if each is not None)


def _row_token(output: Any, place: int) -> RowToken:
    """Return token number `place` of an output of vLLM: of rows with one token a step, the only one."""
    given = output.outputs[0]
    token = TokenId(int(given.token_ids[place]))
    score = TokenScore(token)
    if given.logprobs:
        found = given.logprobs[place]
        top = sorted(found.items(), key=lambda pair: pair[1].rank)
        score = TokenScore(
            token, found[token].logprob, tuple((TokenId(int(each)), logprob.logprob) for each, logprob in top)
        )
    is_last = output.finished and place == len(given.token_ids) - 1
    return RowToken(output.request_id, score, output.num_cached_tokens or 0, is_last)
