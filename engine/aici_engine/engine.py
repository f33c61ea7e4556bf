"""The engine: a model, its cache and its thread. Any thread may call the methods."""

import asyncio
import contextlib
import contextvars
import gc
import importlib
import logging
import operator
import os
import queue
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING, Any, Literal, TypedDict, overload

from aici_base.errors import AiciError, UnavailableError, UsageError
from aici_base.ids import TokenId
from aici_engine.config import EngineConfig
from aici_engine.control.runtime import ControllerRuntime, NoRuntime
from aici_engine.events import Event, FinishEvent, TokenEvent
from aici_engine.heartbeat import Heartbeat
from aici_engine.profile import StepProfile
from aici_engine.prompt_check import check_prompt_len, check_prompt_tokens
from aici_engine.request import ControllerCall, Request, RequestHandle, Sink
from aici_engine.request_check import check_request
from aici_engine.sampling_params import SamplingOptions, from_options
from aici_engine.sequences.sequence import Sequence
from aici_engine.store.paths import in_use

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from aici_engine.components import EngineComponents
    from aici_engine.control.guest_time import GuestTimes

    Build = Callable[..., EngineComponents]

_log = logging.getLogger(__name__)


class Stats(TypedDict):
    """Counts since the engine started, and the current state.

    `cache_usage`: the fraction of pages in use, 0 to 1. `cached_tokens`: tokens of prompts found in the cache.
    `guest_cpu_seconds`: processor time of controllers. `step_seconds`: the time of all steps, forward passes included;
    `forward_seconds`: of the forward passes alone. `drafted_tokens`, `accepted_tokens`: drafted tokens that forward
    passes computed, and those that became text.
    """

    active_requests: int
    waiting_requests: int
    total_requests: int
    cache_usage: float
    tokens_generated: int
    num_preemptions: int
    cached_tokens: int
    guest_cpu_seconds: float
    num_pages: int
    num_steps: int
    step_seconds: float
    forward_seconds: float
    drafted_tokens: int
    accepted_tokens: int


class Engine:
    """Runs one model. The constructor loads the model, in about a second. A process may have several engines.

    `runtime`: the controller runtime, ready. The caller owns the runtime, which must outlive the engine. `on_step`:
    called on the engine's thread after events were sent to sinks, before the engine computes or waits; a server may
    forward the events together. `on_guest_time`: called on the engine's thread, about once a second, with processor
    time of guests. `on_fatal`: called on the engine's thread when the engine has failed and all requests have ended.
    None of these must block. `heartbeat`: tells another process of the engine's progress. End the engine with
    `shutdown`, or as a context manager.

    Raises UsageError for a folder or a runtime that does not fit `config`, UnavailableError on a system without
    support.

    `build` makes the components; by default those that `config` names.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        runtime: ControllerRuntime | None = None,
        on_step: Callable[[], None] | None = None,
        heartbeat: Heartbeat | None = None,
        on_guest_time: "Callable[[GuestTimes], None] | None" = None,
        build: "Build | None" = None,
        on_fatal: Callable[[], None] | None = None,
    ) -> None:
        _prepare_process()
        runtime = runtime or NoRuntime()
        self._vocabulary = (runtime.vocab_size, runtime.eos_token)
        self._components = (build or _builder(config))(config, runtime, on_step, heartbeat, on_guest_time)
        self._use = contextlib.ExitStack()
        for folder in filter(None, (config.model_dir, config.draft_model)):
            self._use.enter_context(in_use(folder))
        self._loop = self._components.loop
        if on_fatal is not None:
            self._loop.on_fatal = on_fatal
        self._total = 0
        self._lock = threading.Lock()
        self._closed = False
        # In this thread's context: there, torch keeps the settings of its compiler.
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._loop.run,), name="aici-engine", daemon=True)
        self._thread.start()

    @property
    def max_len(self) -> int:
        """The most tokens of a sequence, prompt and output together."""
        return self._components.max_len

    @property
    def memory_bytes(self) -> int:
        """Bytes of the weights and of a full KV cache; 0 where the model is divided over machines."""
        return self._components.executor.memory_bytes

    @property
    def vocab_size(self) -> int:
        """The number of tokens with logits."""
        return self._components.vocab_size

    @property
    def states_size(self) -> int:
        """The numbers of an embedding; 0 if this engine computes none."""
        return self._components.executor.states_size

    @property
    def eos_tokens(self) -> frozenset[TokenId]:
        """The tokens that end plain generation."""
        return self._components.eos_tokens

    @property
    def start_token(self) -> TokenId:
        """The token of a prompt without text: the model's start token, or EOS for a model without a start token."""
        return self._components.start_token

    def tokenize(self, text: str) -> list[TokenId]:
        """Return the tokens of `text` by the model's tokenizer, its default special tokens at the ends included.

        Raises UsageError for a lone surrogate, which Python makes of command-line arguments in invalid UTF-8.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"the text is not valid Unicode: {error}") from error
        return self._components.tokenizer.encode(text)

    def submit(self, request: Request, *, sink: Sink | None = None) -> RequestHandle:
        """Queue a request, and return at once. Events go to `sink` if given, else to the handle.

        >>> handle = engine.submit(Request(prompt="Once upon a time", sampling=SamplingParams(max_tokens=8)))
        >>> text = handle.wait().text

        The handle must stay with one reader; `abort` may be called from any thread. Raises UsageError for an empty or
        too long prompt, or for options that exclude each other, and UnavailableError after `shutdown`.
        """
        prompt = self.tokenize(request.prompt) if isinstance(request.prompt, str) else _ids(request.prompt)
        limit = self._limit(prompt, 0 if request.pooling else request.sampling.max_tokens)
        check_request(
            request,
            prompt_len=len(prompt),
            vocab_size=self._components.vocab_size,
            has_states=self.states_size > 0,
        )
        self._components.check(request)
        prediction = _ids(request.prediction)
        check_prompt_tokens(prediction, self._components.vocab_size, param="prediction")
        with self._lock:
            self.check_alive()
            handle = RequestHandle(self._components.new_id(), self._loop.abort)
            self._total += 1
            self._loop.submit(
                Sequence(
                    handle.seq_id,
                    prompt=prompt,
                    sampling=request.sampling,
                    controller=request.controller,
                    limit=limit,
                    sink=sink or handle.put,
                    submitted_at=time.monotonic(),
                    score_from=request.score_from,
                    pooling=request.pooling,
                    priority=request.priority,
                    salt=request.cache_salt,
                    share=request.share,
                    prediction=prediction,
                )
            )
        return handle

    def abort(self, handle: RequestHandle) -> None:
        handle.abort()

    @overload
    def generate(
        self,
        prompt: str,
        *,
        stream: Literal[False] = False,
        controller: ControllerCall | None = None,
        **sampling: "Unpack[SamplingOptions]",
    ) -> str: ...

    @overload
    def generate(
        self,
        prompt: list[str],
        *,
        stream: Literal[False] = False,
        controller: ControllerCall | None = None,
        **sampling: "Unpack[SamplingOptions]",
    ) -> list[str]: ...

    @overload
    def generate(
        self,
        prompt: str,
        *,
        stream: Literal[True],
        controller: ControllerCall | None = None,
        **sampling: "Unpack[SamplingOptions]",
    ) -> Iterator[str]: ...

    @overload
    def generate(
        self,
        prompt: list[str],
        *,
        stream: Literal[True],
        controller: ControllerCall | None = None,
        **sampling: "Unpack[SamplingOptions]",
    ) -> Iterator[tuple[int, str]]: ...

    def generate(
        self,
        prompt: str | list[str],
        *,
        stream: bool = False,
        controller: ControllerCall | None = None,
        **sampling: "Unpack[SamplingOptions]",
    ) -> str | list[str] | Iterator[str] | Iterator[tuple[int, str]]:
        """Return the generated text, without the prompt; for a list of prompts, a list in the same order.

        >>> text = engine.generate("The answer is", max_tokens=8)
        >>> texts = engine.generate(["One, two,", "Alpha, beta,"], max_tokens=8, temperature=0.0)

        `sampling`: the fields of SamplingParams. With `stream`, return an iterator over pieces of text; for a list of
        prompts, over pairs of the prompt's index and a piece. Dropping the iterator aborts the requests. Raises the
        error of a failed request, and the errors of `submit`.
        """
        params = from_options(sampling)
        prompts = [prompt] if isinstance(prompt, str) else prompt
        # All prompts are tokenized and checked before the first one runs.
        tokenized = [self.tokenize(text) for text in prompts]
        for tokens in tokenized:
            self._limit(tokens, params.max_tokens)
        requests = [Request(prompt=tokens, sampling=params, controller=controller) for tokens in tokenized]
        if stream:
            pieces = self._stream(requests)
            return (piece for _, piece in pieces) if isinstance(prompt, str) else pieces
        handles = [self.submit(request) for request in requests]
        try:
            ends = [handle.wait() for handle in handles]
        finally:
            # After Ctrl-C nothing waits for the requests any more.
            for handle in handles:
                handle.abort()
        for end in ends:
            if end.error is not None:
                raise end.error
        texts = [end.text for end in ends]
        return texts[0] if isinstance(prompt, str) else texts

    async def generate_async(
        self, prompt: str, *, controller: ControllerCall | None = None, **sampling: "Unpack[SamplingOptions]"
    ) -> AsyncIterator[str]:
        """Yield pieces of text, as `generate(prompt, stream=True)`, in asyncio."""
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()

        def sink(event: Event) -> None:
            # The asyncio loop may be closed before the abort takes effect.
            if not loop.is_closed():
                loop.call_soon_threadsafe(events.put_nowait, event)

        request = Request(prompt=prompt, sampling=from_options(sampling), controller=controller)
        handle = self.submit(request, sink=sink)
        try:
            while True:
                event = await events.get()
                if piece := _piece(event):
                    yield piece
                if isinstance(event, FinishEvent):
                    return
        finally:
            handle.abort()

    def use_runtime(self, runtime: ControllerRuntime) -> None:
        """Replace the controller runtime, after the old runtime has died, by a ready runtime.

        Controlled requests of the old runtime fail with RuntimeDiedError. Raises UsageError for a runtime with a
        different vocabulary.
        """
        if (runtime.vocab_size, runtime.eos_token) != self._vocabulary:
            raise UsageError(
                f"the new runtime's vocabulary has {runtime.vocab_size} tokens and EOS {runtime.eos_token}, "
                f"the last one's had {self._vocabulary[0]} and {self._vocabulary[1]}",
                hint="start the new runtime with the same tokenizer",
            )
        with self._lock:
            self.check_alive()
            self._loop.use_runtime(runtime)

    def expect_runtime(self, is_expected: bool) -> None:
        """Say whether `use_runtime` follows within seconds when the controller runtime dies; at first it does not.

        If so, controlled requests that have not begun wait for the next runtime. If not, they fail.
        """
        self._loop.expect_runtime(is_expected)

    def shrink(self) -> None:
        """Memory is short: forget half of the cached pages that no request uses, and give their memory back.

        For any thread; at the next turn of the loop. Answers stay the same, and prompts are found in the cache less.
        """
        self._loop.shrink()

    def nudge(self, heard: Callable[[], None]) -> None:
        """Call `heard` on the engine's thread as soon as the step of now has ended. A hanging engine never calls."""
        self._loop.nudge(heard)

    def get_stats(self) -> Stats:
        running = self._loop.num_running
        return Stats(
            active_requests=running,
            waiting_requests=max(0, self._loop.num_alive - running),
            total_requests=self._total,
            cache_usage=self._components.cache.usage,
            tokens_generated=self._loop.tokens_generated,
            num_preemptions=self._loop.num_preemptions,
            cached_tokens=self._loop.num_reused,
            guest_cpu_seconds=self._loop.guest_cpu_s,
            num_pages=self._components.cache.num_pages,
            num_steps=self._loop.profile.num_steps,
            step_seconds=self._loop.profile.steps_s,
            forward_seconds=self._loop.profile.forward_s,
            drafted_tokens=self._loop.num_drafted,
            accepted_tokens=self._loop.num_accepted,
        )

    def pipeline_status(self) -> Mapping[str, Any] | None:
        """Return the state of the pipeline of stages as JSON values; None if this process runs the whole model."""
        return self._components.executor.status()

    def check_alive(self) -> None:
        """Raise UnavailableError after `shutdown`, and the fatal error of an engine that has failed."""
        if self._closed:
            raise UnavailableError("the engine was shut down")
        if self._loop.fatal is not None:
            raise self._loop.fatal

    def profile(self) -> StepProfile:
        """Return the profile of the steps since the last call."""
        return self._loop.profile.read()

    def shutdown(self) -> None:
        """Abort all requests and stop the thread. Idempotent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._loop.stop()
        self._thread.join()
        self._use.close()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()

    def _limit(self, prompt: Seq[TokenId], max_tokens: int | None) -> int:
        if not prompt:
            raise UsageError("the prompt has no tokens", hint="give at least one character, or a token", param="prompt")
        check_prompt_tokens(prompt, self._components.vocab_size)
        check_prompt_len(len(prompt), self.max_len, room=int(max_tokens != 0))
        return self.max_len if max_tokens is None else min(self.max_len, len(prompt) + max_tokens)

    def _stream(self, requests: list[Request]) -> Iterator[tuple[int, str]]:
        events: queue.SimpleQueue[tuple[int, Event]] = queue.SimpleQueue()
        handles = [
            self.submit(request, sink=lambda event, index=index: events.put((index, event)))  # type: ignore[misc]
            for index, request in enumerate(requests)
        ]
        ended = 0
        try:
            while ended < len(handles):
                index, event = events.get()
                if piece := _piece(event):
                    yield index, piece
                if isinstance(event, FinishEvent):
                    ended += 1
        finally:
            for handle in handles:
                handle.abort()


def _builder(config: EngineConfig) -> "Build":
    # Imported here: numpy and the tokenizers are slow to import, so only a process with an engine pays.
    if config.vllm is not None:
        from aici_engine.vllm.components import build_vllm

        return build_vllm
    from aici_engine.components import build_components

    return build_components


def _ids(prompt: Seq[TokenId]) -> list[TokenId]:
    """Return the ids as Python's integers, because JSON cannot encode the integers of arrays."""
    return [TokenId(operator.index(token)) for token in prompt]


def _piece(event: Event) -> str:
    """Return the text that a stream gains by an event. Raises the error of a failed request."""
    if isinstance(event, TokenEvent):
        return event.text
    if isinstance(event, FinishEvent):
        if event.error is not None:
            raise event.error
        return event.tail
    return ""


def import_engine(*, freeze: bool = True) -> None:
    """Import the modules of an engine, half a second faster than the first engine would.

    The imports make many permanent objects, so the import runs without garbage collection. `freeze`: later
    collections skip all objects of the process so far, too; only for a process of aici's own.
    """
    _prepare_process()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        importlib.import_module("aici_engine.components")
    finally:
        if was_enabled:
            gc.enable()
    if freeze:
        gc.freeze()


def _prepare_process() -> None:
    if sys.platform != "linux":
        raise UnavailableError(f"the engine runs on Linux only, not on {sys.platform}")
    # The spinning of libgomp makes a step tens of times slower while other processes need the cores.
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    elif os.environ.get("OMP_WAIT_POLICY", "").upper() != "PASSIVE":
        _log.warning("OMP_WAIT_POLICY=PASSIVE is not set, and torch was imported before the engine: it may spin")


__all__ = ["AiciError", "Engine", "SamplingOptions", "Stats"]
