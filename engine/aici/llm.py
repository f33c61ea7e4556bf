"""A model in this process, or on a server."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack, overload

from aici.backend import Call, check_messages, prompts_of
from aici.batch import run_batch
from aici.chat import ChatResult
from aici.chat import chat as run_chat
from aici.constraints import UNCONSTRAINED, Constraint, Messages
from aici.local import LocalOptions
from aici.opening import open_backend
from aici.results import Result
from aici.sampling import sampling_params
from aici.stream import Stream
from aici.tools import ToolLike
from aici_controllers.schema_check import SchemaKeywords
from aici_engine.config import Device, Dtype, KVCacheDtype, Speculation
from aici_engine.sampling_params import SamplingOptions, SamplingParams

T = TypeVar("T")


class LLM:
    """A language model, ready to generate. The constructor loads a local model within seconds.

    `model` is a name from `aici models list`, a folder in Hugging Face layout, a .gguf file, or a repository of
    the hub; None is the default model. With `server`, the URL of an `aici serve`, nothing is loaded, and `model` is the
    name expected of the server's model; `api_key` is sent along.
    The other arguments are for a local model: the format of weights, the device, the number of threads, the longest
    sequence in tokens, the number of sequences at a time, the number of forks of a request, and the folder of a LoRA
    adapter (peft's) to merge into the model. A forward pass may give several tokens of the same text: `speculate` is
    auto (the default), ngram (an error where that is impossible) or off. `draft_model`, a smaller model with the same
    tokens, named as `model` is, with weights of the format `draft_dtype`, gives more. With `kv_cache_dtype` int8, keys
    and values take about half of the memory, with a small loss; the kernels must run the model. With `controllers`
    False no controller runtime starts, which saves some processes; a request with a constraint is a UsageError then.

    A context manager; `close` ends all processes and threads. Any thread may call the methods. A forked process
    needs an LLM of its own, unless the model is on a server.

    >>> with aici.LLM(max_context=512) as small:
    ...     text = small.generate("Hello", max_tokens=1).text
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
        options = LocalOptions(
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
        self._backend = open_backend(model, server=server, api_key=api_key, options=options)

    @property
    def model(self) -> str:
        """Return the name of the model.

        >>> llm.model
        'smollm2-135m-instruct'
        """
        return self._backend.model

    @overload
    def generate(
        self,
        prompt: str,
        constraint: None = None,
        *,
        sampling: SamplingParams | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Result[str]: ...

    @overload
    def generate(
        self,
        prompt: str,
        constraint: Constraint[T],
        *,
        sampling: SamplingParams | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Result[T]: ...

    @overload
    def generate(
        self,
        prompt: list[str] | tuple[str, ...],
        constraint: None = None,
        *,
        sampling: SamplingParams | None = None,
        progress: bool | None = None,
        **options: Unpack[SamplingOptions],
    ) -> list[Result[str]]: ...

    @overload
    def generate(
        self,
        prompt: list[str] | tuple[str, ...],
        constraint: Constraint[T],
        *,
        sampling: SamplingParams | None = None,
        progress: bool | None = None,
        **options: Unpack[SamplingOptions],
    ) -> list[Result[T]]: ...

    def generate(
        self,
        prompt: str | list[str] | tuple[str, ...],
        constraint: Constraint[Any] | None = None,
        *,
        sampling: SamplingParams | None = None,
        progress: bool | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Result[Any] | list[Result[Any]]:
        """Return the result of a prompt; of several prompts, a list in order, computed together.

        Sampling parameters are given as keywords or as `sampling`; keywords replace fields of `sampling`. Without
        `sampling`, keywords replace the defaults temperature 0 (greedy) and max_tokens 256 (for a script: the rest of
        the context). `SamplingParams(...)` has defaults of its own: temperature 1, top_k 50 and no bound on tokens.
        A single prompt raises the error of the request. In a list, a wrong prompt raises UsageError and ends the rest;
        `Result.error` holds any other failure. `progress` shows or hides a line on stderr with the number of requests
        done; the default shows the line on a terminal.

        >>> answers = llm.generate(["Is fire hot? ", "Is ice hot? "], aici.choice("yes", "no"))
        >>> [answer.value in ("yes", "no") for answer in answers]
        [True, True]
        """
        params = sampling_params(sampling, options, constraint)
        kept = constraint or UNCONSTRAINED
        if not isinstance(prompt, str):
            calls = [
                (text, Call(prompt=text, sampling=params, constraint=constraint, patient=True))
                for text in prompts_of(prompt)
            ]
            return run_batch(self._backend, calls, kept, progress=progress)
        result = Stream(
            self._backend, Call(prompt=prompt, sampling=params, constraint=constraint), prompt, kept
        ).result()
        if result.error is not None:
            raise result.error
        return result

    @overload
    def stream(
        self,
        prompt: str,
        constraint: None = None,
        *,
        sampling: SamplingParams | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Stream[str]: ...

    @overload
    def stream(
        self,
        prompt: str,
        constraint: Constraint[T],
        *,
        sampling: SamplingParams | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Stream[T]: ...

    def stream(
        self,
        prompt: str,
        constraint: Constraint[Any] | None = None,
        *,
        sampling: SamplingParams | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Stream[Any]:
        """Begin a request and return a stream of events. The arguments are those of `generate`.

        >>> stream = llm.stream("Once upon a time", max_tokens=3)
        >>> len("".join(stream.text())) > 0
        True
        """
        params = sampling_params(sampling, options, constraint)
        call = Call(prompt=prompt, sampling=params, constraint=constraint)
        return Stream(self._backend, call, prompt, constraint or UNCONSTRAINED)

    @overload
    def chat_stream(
        self,
        messages: Messages,
        constraint: None = None,
        *,
        sampling: SamplingParams | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Stream[str]: ...

    @overload
    def chat_stream(
        self,
        messages: Messages,
        constraint: Constraint[T],
        *,
        sampling: SamplingParams | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Stream[T]: ...

    def chat_stream(
        self,
        messages: Messages,
        constraint: Constraint[Any] | None = None,
        *,
        sampling: SamplingParams | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Stream[Any]:
        """Begin the assistant's answer to a conversation and return a stream of events.

        Messages have a `role` and a `content`; the model's chat template makes the prompt.

        >>> stream = llm.chat_stream([{"role": "user", "content": "Say hello."}], max_tokens=4)
        >>> len(stream.result().tokens)
        4
        """
        params = sampling_params(sampling, options, constraint)
        check_messages(messages)
        call = Call(prompt=messages, sampling=params, constraint=constraint)
        return Stream(self._backend, call, messages, constraint or UNCONSTRAINED)

    @overload
    def chat(
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
    def chat(
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

    def chat(
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
        """Return the assistant's answer to a conversation, possibly with calls of tools.

        `messages` are as in OpenAI's API. `tools` are Python functions, described by signature and docstring, or dicts.
        `tool_choice` is `auto`, `none`, `required` or the name of a tool; with `parallel`, the model may make several
        calls. Arguments of calls are always valid against the signature. `schema_options` are the options of
        `json_schema`, for the schemas of the tools. A constraint excludes tools.

        >>> def get_weather(city: str) -> str: "Return the weather of a city."
        >>> messages = [{"role": "user", "content": "How is the weather in Rome?"}]
        >>> llm.chat(messages, tools=[get_weather], tool_choice="required", parallel=False).tool_calls[0].name
        'get_weather'
        """
        return run_chat(
            self._backend,
            messages,
            constraint,
            tools=tools,
            tool_choice=tool_choice,
            parallel=parallel,
            schema_options=schema_options,
            sampling=sampling,
            options=options,
        )

    def close(self) -> None:
        """End all requests, processes and threads. Idempotent.

        >>> far = aici.LLM(server="http://127.0.0.1:4242")
        >>> far.close()
        """
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
