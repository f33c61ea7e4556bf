"""A model in this process or on a server, for asyncio."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack, overload

from aici.async_stream import AsyncStream, in_own_thread, run_batch
from aici.backend import Backend, Call, Cancel, check_messages, prompts_of
from aici.chat import ChatResult
from aici.chat import chat as run_chat
from aici.constraints import UNCONSTRAINED, Constraint, Messages
from aici.errors import UsageError
from aici.local import LocalOptions
from aici.opening import open_backend
from aici.results import Result
from aici.sampling import sampling_params
from aici.tools import ToolLike
from aici_controllers.schema_check import SchemaKeywords
from aici_engine.config import Device, Dtype, KVCacheDtype, Speculation
from aici_engine.sampling_params import SamplingOptions, SamplingParams

T = TypeVar("T")


class AsyncLLM:
    """`LLM` for asyncio, with the same arguments. An asynchronous context manager: `async with` loads the model.

    >>> async def example():
    ...     async with aici.AsyncLLM(max_context=512) as small:
    ...         return (await small.generate("Two digits: ", aici.regex("[0-9]{2}"))).text
    >>> len(asyncio.run(example()))
    2
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        server: str | None = None,
        api_key: str | None = None,
        dtype: Dtype | None = None,
        device: Device | None = None,
        threads: int | None = None,
        max_context: int | None = None,
        max_num_seqs: int | None = None,
        max_forks: int | None = None,
        adapter: str | Path | None = None,
        speculate: Speculation | None = None,
        draft_model: str | Path | None = None,
        draft_dtype: Dtype | None = None,
        kv_cache_dtype: KVCacheDtype | None = None,
        controllers: bool = True,
    ) -> None:
        self._model = model
        self._server = server
        self._api_key = api_key
        self._options = LocalOptions(
            dtype=dtype,
            device=device,
            threads=threads,
            max_context=max_context,
            max_num_seqs=max_num_seqs,
            max_forks=max_forks,
            adapter=adapter,
            speculate=speculate,
            draft_model=draft_model,
            draft_dtype=draft_dtype,
            kv_cache_dtype=kv_cache_dtype,
            controllers=controllers,
        )
        self._opened: Backend | None = None

    @overload
    async def generate(
        self,
        prompt: str,
        constraint: None = None,
        *,
        sampling: SamplingParams | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Result[str]: ...

    @overload
    async def generate(
        self,
        prompt: str,
        constraint: Constraint[T],
        *,
        sampling: SamplingParams | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Result[T]: ...

    @overload
    async def generate(
        self,
        prompt: list[str] | tuple[str, ...],
        constraint: None = None,
        *,
        sampling: SamplingParams | None = None,
        progress: bool | None = None,
        **options: Unpack[SamplingOptions],
    ) -> list[Result[str]]: ...

    @overload
    async def generate(
        self,
        prompt: list[str] | tuple[str, ...],
        constraint: Constraint[T],
        *,
        sampling: SamplingParams | None = None,
        progress: bool | None = None,
        **options: Unpack[SamplingOptions],
    ) -> list[Result[T]]: ...

    async def generate(
        self,
        prompt: str | list[str] | tuple[str, ...],
        constraint: Constraint[Any] | None = None,
        *,
        sampling: SamplingParams | None = None,
        progress: bool | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Result[Any] | list[Result[Any]]:
        """Return the result of a prompt; of several prompts, a list in their order. See `LLM.generate`.

        A cancelled task ends the requests.
        """
        params = sampling_params(sampling, options, constraint)
        prompts = [prompt] if isinstance(prompt, str) else prompts_of(prompt)
        is_list = not isinstance(prompt, str)
        calls = [(text, Call(prompt=text, sampling=params, constraint=constraint, patient=is_list)) for text in prompts]
        shown = progress if is_list else False
        results = await run_batch(self._backend, calls, constraint or UNCONSTRAINED, progress=shown)
        if is_list:
            return results
        if results[0].error is not None:
            raise results[0].error
        return results[0]

    @overload
    def stream(
        self,
        prompt: str,
        constraint: None = None,
        *,
        sampling: SamplingParams | None = None,
        **options: Unpack[SamplingOptions],
    ) -> AsyncStream[str]: ...

    @overload
    def stream(
        self,
        prompt: str,
        constraint: Constraint[T],
        *,
        sampling: SamplingParams | None = None,
        **options: Unpack[SamplingOptions],
    ) -> AsyncStream[T]: ...

    def stream(
        self,
        prompt: str,
        constraint: Constraint[Any] | None = None,
        *,
        sampling: SamplingParams | None = None,
        **options: Unpack[SamplingOptions],
    ) -> AsyncStream[Any]:
        """Return the events of a request. The request begins with the iteration. See `LLM.stream`."""
        return self._stream(prompt, constraint, sampling_params(sampling, options, constraint))

    @overload
    def chat_stream(
        self,
        messages: Messages,
        constraint: None = None,
        *,
        sampling: SamplingParams | None = None,
        **options: Unpack[SamplingOptions],
    ) -> AsyncStream[str]: ...

    @overload
    def chat_stream(
        self,
        messages: Messages,
        constraint: Constraint[T],
        *,
        sampling: SamplingParams | None = None,
        **options: Unpack[SamplingOptions],
    ) -> AsyncStream[T]: ...

    def chat_stream(
        self,
        messages: Messages,
        constraint: Constraint[Any] | None = None,
        *,
        sampling: SamplingParams | None = None,
        **options: Unpack[SamplingOptions],
    ) -> AsyncStream[Any]:
        """Return the events of the assistant's answer to a conversation. See `LLM.chat_stream`."""
        check_messages(messages)
        return self._stream(messages, constraint, sampling_params(sampling, options, constraint))

    @overload
    async def chat(
        self,
        messages: Messages,
        constraint: None = None,
        *,
        tools: Sequence[ToolLike] = (),
        tool_choice: str = "auto",
        parallel: bool = True,
        schema_options: SchemaKeywords | None = None,
        sampling: SamplingParams | None = None,
        **options: Unpack[SamplingOptions],
    ) -> ChatResult[str]: ...

    @overload
    async def chat(
        self,
        messages: Messages,
        constraint: Constraint[T],
        *,
        tools: Sequence[ToolLike] = (),
        tool_choice: str = "auto",
        parallel: bool = True,
        schema_options: SchemaKeywords | None = None,
        sampling: SamplingParams | None = None,
        **options: Unpack[SamplingOptions],
    ) -> ChatResult[T]: ...

    async def chat(
        self,
        messages: Messages,
        constraint: Constraint[Any] | None = None,
        *,
        tools: Sequence[ToolLike] = (),
        tool_choice: str = "auto",
        parallel: bool = True,
        schema_options: SchemaKeywords | None = None,
        sampling: SamplingParams | None = None,
        **options: Unpack[SamplingOptions],
    ) -> ChatResult[Any]:
        """Return the assistant's answer to a conversation. See `LLM.chat`. A cancelled task ends the answer."""
        cancel = Cancel()
        answer = asyncio.ensure_future(
            in_own_thread(
                lambda: run_chat(
                    self._backend,
                    messages,
                    constraint,
                    tools=tools,
                    tool_choice=tool_choice,
                    parallel=parallel,
                    schema_options=schema_options,
                    sampling=sampling,
                    options=options,
                    cancel=cancel,
                )
            )
        )
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            cancel.set()
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise

    @property
    def model(self) -> str:
        """Return the name of the model. With a server, the first use may ask the server."""
        return self._backend.model

    async def close(self) -> None:
        """End all requests, processes and threads. Idempotent."""
        if self._opened is not None:
            await asyncio.to_thread(self._opened.close)

    async def __aenter__(self) -> Self:
        opening = asyncio.ensure_future(
            asyncio.to_thread(
                open_backend, self._model, server=self._server, api_key=self._api_key, options=self._options
            )
        )
        try:
            self._opened = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_opened)
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def _backend(self) -> Backend:
        if self._opened is None:
            raise UsageError("the AsyncLLM is not open", hint="async with aici.AsyncLLM(...) as llm:")
        return self._opened

    def _stream(
        self, prompt: str | Messages, constraint: Constraint[Any] | None, params: SamplingParams
    ) -> AsyncStream[Any]:
        call = Call(prompt=prompt, sampling=params, constraint=constraint)
        return AsyncStream(self._backend, call, prompt, constraint or UNCONSTRAINED)


def _close_opened(opening: "asyncio.Future[Backend]") -> None:
    """Close a model after a cancelled opening: loading cannot be interrupted."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
