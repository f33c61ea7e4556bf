"""The engine in this process, and the controller runtime below."""

import contextlib
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from aici.backend import Abort, Call, Cancel, ChatCall, ChatOutcome, Sink, digest
from aici.chat_stream import constrained_chat
from aici.constraints import Constraint
from aici.errors import UnavailableError, UsageError
from aici.spare_store import SpareStore, can_grow
from aici_base.ids import TokenId
from aici_controllers.catalog import SHIPPED, guest_path, pooled_module_ids
from aici_engine.config import Device, Dtype, EngineConfig, KVCacheDtype, Speculation
from aici_engine.extras import EXTRAS

if TYPE_CHECKING:
    from aici_controllers.store import Store
    from aici_engine.chat.template import ChatTemplate
    from aici_engine.request import ControllerCall
    from aici_engine.vocabulary import ModelVocabulary
    from aici_runtime.client import Runtime

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

DEFAULT_MAX_FORKS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """Settings of the engine. None: the default of `EngineConfig`. `controllers`: whether to start the runtime.

    `adapter`: the folder of a LoRA adapter, which is merged into the model.
    """

    dtype: Dtype | None = None
    device: Device | None = None
    threads: int | None = None
    max_context: int | None = None
    max_num_seqs: int | None = None
    max_forks: int | None = None
    adapter: str | Path | None = None
    speculate: Speculation | None = None
    draft_model: str | Path | None = None
    draft_dtype: Dtype | None = None
    kv_cache_dtype: KVCacheDtype | None = None
    controllers: bool = True

    def engine_config(self, model_dir: Path) -> EngineConfig:
        fields = {
            "dtype": self.dtype,
            "device": self.device,
            "num_threads": self.threads,
            "max_context": self.max_context,
            "max_num_seqs": self.max_num_seqs,
            "speculate": self.speculate,
            "draft_model": self._draft_folder(),
            "draft_dtype": self.draft_dtype,
            "kv_cache_dtype": self.kv_cache_dtype,
            "lora": self._adapter_folder(),
        }
        given: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
        return EngineConfig(model_dir=model_dir, **given)

    def _draft_folder(self) -> Path | None:
        """Return the folder of the draft model, fetched and converted where that is needed."""
        if self.draft_model is None or isinstance(self.draft_model, Path):
            return self.draft_model

        from aici_engine.store.resolve import resolve_model

        return resolve_model(self.draft_model, say=_say)

    def _adapter_folder(self) -> Path | None:
        """Raise UsageError for a folder without a LoRA adapter."""
        if self.adapter is None:
            return None

        from aici_engine.model.lora_settings import LoraSettings

        return LoraSettings(Path(self.adapter).expanduser().resolve()).folder


class LocalBackend:
    """Loads the model, and starts the controller runtime beside it if `options` ask for one, in the constructor.

    A failed or interrupted constructor leaves nothing behind.
    """

    def __init__(self, model: str | Path | None, options: LocalOptions) -> None:
        from aici_controllers.store import Store
        from aici_engine.store.resolve import resolve_model
        from aici_runtime.client import Runtime, RuntimeConfig
        from aici_runtime.config import patient

        with _with_extra():
            self._model_dir = model if isinstance(model, Path) else resolve_model(model, say=_say)
            engine_config = options.engine_config(self._model_dir)
        self._modules: dict[str, str] = {}
        self._pid = os.getpid()
        self._modules_lock = threading.Lock()
        self._store = Store()
        with contextlib.ExitStack() as stack:
            self._runtime: Runtime | None = None
            self._spare: SpareStore | None = None
            if options.controllers:
                if not can_grow(self._store.folder):
                    self._spare = stack.enter_context(
                        contextlib.closing(SpareStore(lambda line: _log.warning("%s", line)))
                    )
                # The runtime comes up on another core during the import of torch.
                config = RuntimeConfig(
                    tokenizer=self._model_dir,
                    max_forks=options.max_forks or DEFAULT_MAX_FORKS,
                    pooled=pooled_module_ids(),
                    cache_dir=None if self._spare is None else self._spare.cache_dir,
                )
                self._runtime = stack.enter_context(Runtime(patient(config)))

            from aici_engine.engine import Engine, import_engine

            with _with_extra():
                in_thread(lambda: import_engine(freeze=False))
            if self._runtime is not None:
                self._runtime.wait_ready()
            self._engine = stack.enter_context(in_thread(lambda: Engine(engine_config, runtime=self._runtime)))
            if self._runtime is not None:
                # The runtime closes first: a hanging runtime would keep the engine, and Ctrl-C, waiting.
                stack.callback(self._runtime.close)
            # Without `close`, the last reference or the end of the interpreter closes.
            self._close = weakref.finalize(self, _close, stack.pop_all(), self._pid)

    @property
    def model(self) -> str:
        return self._model_dir.name

    def start(self, call: Call, sink: Sink) -> Abort:
        if os.getpid() != self._pid:
            raise UsageError("this LLM belongs to the process that made the LLM", hint="make an LLM in each process")

        from aici_engine.request import Request

        request = Request(
            prompt=self._prompt(call), sampling=call.sampling, controller=self._controller(call.constraint)
        )
        return self._engine.submit(request, sink=sink).abort

    def close(self) -> None:
        self._close()

    def chat(self, call: ChatCall, cancel: Cancel) -> ChatOutcome:
        if call.constraint is not None:
            return constrained_chat(self, call, cancel)

        from aici.local_chat import run_chat

        return run_chat(self, self._vocabulary, self._template, self._engine.max_len, call, cancel)

    @cached_property
    def _vocabulary(self) -> "ModelVocabulary":
        from aici_engine.vocabulary import ModelVocabulary

        return ModelVocabulary(self._model_dir)

    @cached_property
    def _template(self) -> "ChatTemplate":
        from aici_engine.chat.template import ChatTemplate

        template = ChatTemplate.of(self._model_dir)
        if template is None:
            raise UsageError(
                f"the model in {self._model_dir} has no chat template",
                cli_hint="leave --chat out",
                python_hint="use generate or stream",
            )
        return template

    def _prompt(self, call: Call) -> "str | list[TokenId]":
        if isinstance(call.prompt, str):
            return call.prompt or [self._engine.start_token]
        if isinstance(call.prompt, tuple) and all(isinstance(token, int) for token in call.prompt):
            return [TokenId(token) for token in call.prompt if isinstance(token, int)]

        from aici_engine.chat.messages import plain_messages

        messages = [message for message in call.prompt if not isinstance(message, int)]
        text = self._template.render(plain_messages(self._vocabulary.plain, messages))
        return [TokenId(token) for token in self._vocabulary.encode(text, add_special_tokens=False)]

    def _controller(self, constraint: Constraint[Any] | None) -> "ControllerCall | None":
        if constraint is None:
            return None

        from aici_engine.request import ControllerCall

        return ControllerCall(self._module_id(constraint.controller), constraint.argument)

    def _module_id(self, controller: str | bytes) -> str:
        key = digest(controller) if isinstance(controller, bytes) else controller
        with self._modules_lock:
            if key not in self._modules:
                self._modules[key] = self._bring(controller)
            return self._modules[key]

    def _bring(self, controller: str | bytes) -> str:
        """Make sure that the runtime has a module, and return the id."""
        if self._runtime is None:
            raise UsageError("this LLM has no controller runtime", python_hint="leave out controllers=False")
        if self._spare is not None:
            name = controller if isinstance(controller, str) else "the controller"
            module_id = self._store.resolve(controller) if isinstance(controller, str) else digest(controller)
            self._spare.provide(module_id, name)
        return bring_module(self._runtime, self._store, controller)


def bring_module(runtime: "Runtime", store: "Store", controller: str | bytes) -> str:
    """Make sure that `runtime` has a module, given by name or as bytes, and return the id."""
    if isinstance(controller, str):
        if controller not in SHIPPED:
            return store.resolve(controller)
        return runtime.mk_module(guest_path(controller)).module_id
    return runtime.mk_module(controller).module_id


def _close(stack: contextlib.ExitStack, pid: int) -> None:
    """Close engine and runtime, but not on a thread of the engine, where garbage may be collected.

    A forked child of process `pid` closes nothing: engine and runtime are the parent's.
    """
    if os.getpid() != pid:
        stack.pop_all()
    elif threading.current_thread() is threading.main_thread():
        stack.close()
    else:
        closing = threading.Thread(target=stack.close)
        closing.start()
        if not threading.current_thread().name.startswith("aici"):
            closing.join()


def in_thread(work: Callable[[], _T]) -> _T:
    """Run `work` in a new thread and return the result. Ctrl-C interrupts the caller's wait, not the work.

    KeyboardInterrupt inside of torch's C++ would abort the process.
    """
    return threaded(work).result()


def threaded(work: Callable[[], _T]) -> "Future[_T]":
    """Begin `work` in a new thread."""
    done: Future[_T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001  raised where it is waited for
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done


@contextlib.contextmanager
def _with_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name not in EXTRAS:
            raise
        hint = f"pip install 'aici[{EXTRAS[error.name]}]'"
        raise UnavailableError(f"{error.name} is not installed", hint=hint) from error


def _say(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"{line}\n")
    else:
        _log.info("%s", line)
