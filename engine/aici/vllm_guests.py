"""The guests of the requests of a vLLM scheduler. Imports nothing of vLLM."""

import contextlib
import logging
import secrets
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Final

from aici.append_only import Bits
from aici.constraints import Constraint
from aici.guest_runtime import GuestRuntime
from aici.vllm_request import check_sampling
from aici_base.errors import AiciError, UnavailableError, UsageError
from aici_engine.vllm.eos_words import EosWords
from aici_engine.vllm.row_engine import Words

_SHORT_S: Final = 0.01
_log = logging.getLogger(__name__)


class ScheduledGuests:
    """The guests of a vLLM scheduler's requests. Call from the scheduler's thread.

    `open_runtime` starts a runtime; called anew after a runtime has died. `num_logits`: of the model. A request whose
    guest fails is among the result of `failed`, once.
    """

    def __init__(self, open_runtime: Callable[[], GuestRuntime], *, num_logits: int) -> None:
        self._open = open_runtime
        self._runtime: GuestRuntime | None = open_runtime()
        self._num_logits = num_logits
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="aici-start")
        self._starting: dict[str, tuple[Any, Future[None]]] = {}
        self._running: dict[str, tuple[Any, int]] = {}
        self._asked = False
        self._errors: dict[str, AiciError] = {}

    @property
    def num_starting(self) -> int:
        return len(self._starting)

    def starting(self) -> list[str]:
        """Return the requests whose guests are starting."""
        return list(self._starting)

    def begin(self, request: Any, constraint: Constraint[Any]) -> None:
        """Start the guest of a request, which `ready` returns later. Raises AiciError if there is no runtime."""
        if self._runtime is None:
            self._runtime = self._open()
        if request.prompt_token_ids is None:
            raise UsageError("a prompt of embeddings does not go with a controller", hint="send a text or tokens")
        check_sampling(request.sampling_params)
        seed = request.sampling_params.seed
        seed = secrets.randbits(63) if seed is None else seed
        key, prompt = request.request_id, list(request.prompt_token_ids)
        future = self._pool.submit(self._start, self._runtime, key, prompt, constraint, seed)
        self._starting[key] = (request, future)

    def ready(self, *, patient: bool) -> list[Any]:
        """Return the requests whose guests have started, or have failed to. `patient`: nothing else is to be done."""
        if patient and self._starting:
            wait([future for _, future in self._starting.values()], timeout=_SHORT_S, return_when="FIRST_COMPLETED")
        done = {key: pair for key, pair in self._starting.items() if pair[1].done()}
        bound = []
        for key, (request, future) in done.items():
            del self._starting[key]
            self._running[key] = (request, 0)
            error = future.exception()
            if error is None:
                bound.append(key)
            else:
                self._fail(key, error if isinstance(error, AiciError) else AiciError(f"the guest: {error!r}"))
        if bound:
            with self._runtime_may_die():
                self._alive().guests.bind(bound)
        return [request for request, _ in done.values()]

    def take_starting(self, key: str) -> Any:
        """Return the request `key` if its guest is still starting, else None. The guest ends."""
        if key not in self._starting:
            return None
        request, future = self._starting.pop(key)
        future.add_done_callback(lambda _: self._discard(key))
        return request

    def free(self, key: str) -> None:
        """End the guest of a request. No effect on requests without one."""
        if self._running.pop(key, None) is not None and self._runtime is not None:
            self._runtime.guests.free(key)
        self._errors.pop(key, None)

    def ask(self, keys: Iterable[str]) -> None:
        """Let guests compute the masks of the requests `keys`, of which some may have no guest."""
        rows = {}
        for key in keys:
            if key in self._running and key not in self._errors:
                request, num_seen = self._running[key]
                tokens = list(request.output_token_ids)
                rows[key] = tokens[num_seen:]
                self._running[key] = (request, len(tokens))
        self._asked = bool(rows)
        if rows:
            with self._runtime_may_die():
                self._alive().guests.send(rows)

    def masks(self) -> dict[str, Words]:
        """Return the masks of the last `ask`, by request, as vLLM has them: 32 tokens a word."""
        if not self._asked:
            return {}
        self._asked = False
        found: dict[str, Words] = {}
        with self._runtime_may_die():
            for key, answer in self._alive().guests.receive().items():
                if isinstance(answer, AiciError):
                    self._fail(key, answer)
                else:
                    found[key] = self._words(key, answer)
        return found

    def failed(self) -> dict[str, AiciError]:
        """Return the errors of guests that have failed, by request, which the caller ends."""
        errors, self._errors = self._errors, {}
        return errors

    def flush(self) -> None:
        """End the guests of ended requests now. Call when nothing is to be computed."""
        if self._runtime is not None:
            with self._runtime_may_die():
                self._runtime.guests.flush()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        if self._runtime is not None:
            self._runtime.close()

    def _start(
        self, runtime: GuestRuntime, key: str, prompt: list[int], constraint: Constraint[Any], seed: int
    ) -> None:
        module_id = runtime.bring(constraint.controller)
        runtime.guests.start(key, prompt, module_id=module_id, argument=constraint.argument, seed=seed).result()

    def _words(self, key: str, bits: Bits) -> Words:
        """Return a mask in words over all logits, with every EOS of the request where the guest allows EOS."""
        params = self._running[key][0].sampling_params
        ends = {params.eos_token_id, *params.all_stop_token_ids} - {None}
        words = EosWords(num_logits=self._num_logits, eos_token=self._alive().eos_token, all_eos=ends).of(bits)
        if not words.any():
            self._fail(
                key,
                AiciError(
                    "the controller ends the text, and vLLM knows no EOS for the request",
                    hint="give the model's generation_config.json an eos_token_id",
                ),
            )
        return words

    def _alive(self) -> GuestRuntime:
        if self._runtime is None:
            raise UnavailableError("the controller runtime died", hint="the next request starts another runtime")
        return self._runtime

    def _discard(self, key: str) -> None:
        if self._runtime is not None:
            with contextlib.suppress(AiciError):
                self._runtime.guests.discard(key)

    def _fail(self, key: str, error: AiciError) -> None:
        _log.error("request %s: its controller failed: %s", key, error)
        self._errors[key] = error

    @contextlib.contextmanager
    def _runtime_may_die(self) -> Any:
        """An error here fails the requests with a guest, and no others. The next request opens a new runtime."""
        try:
            yield
        except AiciError as error:
            for key in self._running:
                self._errors.setdefault(key, error)
            _log.exception("the controller runtime failed; the next request with a controller starts another")
            if self._runtime is not None:
                self._runtime.close()
                self._runtime = None
