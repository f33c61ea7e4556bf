"""Drive a controller through the steps of a case, without a model.

The guest runs in the real runtime, in its own process as with an engine. So imports, sandbox, time and memory limits,
forks and variables are real, and a broken rule fails here as well.
"""

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from aici_base.errors import ControllerError
from aici_base.ids import SeqId, TokenId
from aici_base.tokenizer.tokens import read_vocabulary
from aici_controllers.case_file import Case, Step
from aici_runtime.client import Runtime
from aici_runtime.tokenizer import host_tokenizer, trie
from aici_runtime.wire import MidOp, PostOp, Pre, PreOp, SeqResult, Splice

_MAX_SHOWN = 20
_TOKEN = {"allowed", "refused", "exactly", "end", "sample", "sample_tokens", "sample_end"}
"""The keys of a step that concern the next token."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a case. `step` counts from 1; 0 if the guest did not start. `message`: empty if all steps
    passed."""

    name: str
    step: int
    message: str
    log: str

    @property
    def ok(self) -> bool:
        return not self.message


class Tokens:
    """The vocabulary of a `tokenizer.json`, by text."""

    def __init__(self, tokenizer_json: Path) -> None:
        vocabulary = read_vocabulary(tokenizer_json.read_bytes())
        self._tokenize = host_tokenizer.load(
            tokenizer_json, trie.serialize(vocabulary.token_bytes, vocabulary.eos_token)
        )
        self.bytes_of = vocabulary.token_bytes
        self.eos = vocabulary.eos_token
        self._ids = {raw: TokenId(token) for token, raw in enumerate(vocabulary.token_bytes) if raw}
        self._longest = max(map(len, self._ids), default=0)

    def prompt(self, text: str) -> list[TokenId]:
        raw = self._tokenize(text.encode())
        return [TokenId(token) for token in memoryview(raw).cast("I")] if raw else []

    def first(self, text: bytes) -> TokenId:
        """Return the longest token at the beginning of `text`."""
        for length in range(min(len(text), self._longest), 0, -1):
            if (token := self._ids.get(text[:length])) is not None:
                return token
        raise _DiffersError(f"no token of this vocabulary begins {show(text)}")

    def split(self, rest: bytes) -> Iterator[TokenId]:
        while rest:
            token = self.first(rest)
            yield token
            rest = rest[len(self.bytes_of[token]) :]

    def beginning(self, texts: Sequence[bytes]) -> set[TokenId]:
        """Return all tokens that begin one of `texts`."""
        prefixes = {text[:length] for text in texts for length in range(1, len(text) + 1)}
        return {TokenId(token) for token, raw in enumerate(self.bytes_of) if raw in prefixes}

    def decode(self, tokens: Sequence[TokenId]) -> bytes:
        return b"".join(self.bytes_of[token] for token in tokens)

    def show(self, token: TokenId) -> str:
        if token >= len(self.bytes_of):
            return f"token {token}, of {len(self.bytes_of)},"
        return "the end" if token == self.eos else show(self.bytes_of[token])


def show(raw: bytes) -> str:
    text = raw.decode("utf-8", "backslashreplace")
    return '"' + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text) + '"'


class CaseRunner:
    """Runs the cases of one module, one at a time."""

    def __init__(self, runtime: Runtime, tokens: Tokens, module_id: str) -> None:
        self._runtime = runtime
        self._tokens = tokens
        self._module_id = module_id
        self._ids = itertools.count(1)

    def run(self, case: Case) -> Outcome:
        req_id = f"case-{next(self._ids)}"
        prompt = self._tokens.prompt(case.prompt)
        try:
            self._runtime.instantiate(
                req_id=req_id,
                prompt=prompt,
                module_id=self._module_id,
                module_arg=case.argument,
            ).result()
        except ControllerError as error:
            unexpected = not case.error or case.error not in error.message
            return Outcome(case.name, 0, f"the guest did not start: {error.message}" if unexpected else "", "")
        if case.error or not case.steps:
            self._runtime.discard(req_id)
            return Outcome(case.name, 0, f"the guest started; expected: {case.error}" if case.error else "", "")
        story = _Story(self._runtime, self._tokens, req_id, self._ids, prompt)
        try:
            for number, step in enumerate(case.steps, 1):
                try:
                    story.play(step)
                except _DiffersError as difference:
                    return Outcome(case.name, number, str(difference), story.log)
        finally:
            story.end()
        return Outcome(case.name, len(case.steps), "", story.log)


class _DiffersError(Exception):
    """The controller did something unexpected."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A splice. A splice that restores the removed tokens lets the step pass without effect."""

    backtrack: int
    forced: bytes
    holds: bool


@dataclass(slots=True)
class _CaseFork:
    """One sequence. `taken`: the prompt and all tokens after. `pre` and `mid`: answers of the guest that no step has
    checked yet; a splice in `mid` is applied nevertheless, and reported to the guest in the next round.
    `has_waited`: pre suspended in a step of another fork, and may not be suspended any more. `ahead`: the forced
    text at the end of `taken` not checked by any step yet. `done`: a step has checked the end of the sequence."""

    seq_id: SeqId
    taken: list[TokenId]
    post: PostOp | None = None
    pre: Pre | None = None
    has_waited: bool = False
    ahead: bytes = b""
    mid: tuple[_Change | None, set[TokenId]] | None = None
    stopped: bool = False
    error: str = ""
    log: str = ""
    done: bool = False


class _Story:
    def __init__(
        self, runtime: Runtime, tokens: Tokens, req_id: str, ids: Iterator[int], prompt: Sequence[TokenId]
    ) -> None:
        self._runtime = runtime
        self._tokens = tokens
        self._ids = ids
        self._forks = [_CaseFork(SeqId(next(ids)), list(prompt))]
        self._variables: dict[str, bytes] = {}
        self.log = ""
        self._round(self._forks[0], [PreOp(self._forks[0].seq_id, req_id)])

    def end(self) -> None:
        self._runtime.post_pre_process(post_ops=[], pre_ops=[], freed=[fork.seq_id for fork in self._forks])

    def play(self, step: Step) -> None:
        if step.fork >= len(self._forks):
            raise _DiffersError(
                f"fork {step.fork} does not exist: there are {len(self._forks)} sequences, numbered from 0"
            )
        fork = self._forks[step.fork]
        if fork.done:
            raise _DiffersError("the sequence has ended before this step")
        self._decide(fork, step)
        fork.done = fork.stopped or bool(fork.error)
        self._expect_error(fork, step)
        _expect(step.stop or not fork.stopped, "the controller stopped")
        _expect(fork.stopped or not step.stop, "the controller continues where the step expects a stop")
        log, fork.log = fork.log, ""
        for text in step.log:
            _expect(text in log, f"the log lacks {show(text.encode())}; it has {show(log.encode())}")
        for name, value in step.variables.items():
            found = self._variables.get(name)
            shown = "is not set" if found is None else f"is {show(found)}"
            _expect(found == value.encode(), f"the variable {name} {shown}")

    def _decide(self, fork: _CaseFork, step: Step) -> None:
        """Check the behaviour of the controller before and in this step, then sample."""
        if fork.mid is None:
            if not fork.error and not fork.ahead and (fork.pre is None or fork.has_waited):
                self._round(fork)
            if fork.error or (fork.pre is None and not fork.ahead):
                _expect_no_token(step, "the guest failed before the next token", unless=not step.error)
                return
            self._append_forced(fork)
            if fork.ahead and not step.forced and _said(step):
                # The text expected by the step has appeared, whether forced or sampled.
                _expect(not step.suspended and step.forks == 1, "the controller forces the next token")
                _expect_no_change(step)
                self._expect_mask(allowed := self._tokens.beginning([fork.ahead]), step)
                self._sample(fork, step, allowed)
                return
            pre, fork.pre = fork.pre or Pre(suspend=False, num_forks=1, ff_tokens=()), None
            _expect(pre.suspend == step.suspended, f"the controller {'waits' if pre.suspend else 'does not wait'}")
            if pre.suspend or pre.num_forks != 1:
                self._before_token(fork, step, pre.num_forks)
                return
            self._ask([MidOp(fork.seq_id)])
        _expect(step.forks == 1, "the controller does not fork")
        _expect(not step.suspended, "the controller does not wait")
        if fork.error or fork.mid is None:
            _expect_no_token(step, "the guest failed before the next token", unless=not step.error)
            return
        (change, allowed), fork.mid = fork.mid, None
        forced, fork.ahead = fork.ahead, b""
        if change is None:
            _expect_text("forced", forced, step.forced)
            _expect_no_change(step)
            self._expect_mask(allowed, step)
            self._sample(fork, step, allowed)
            return
        holds = "lets the step pass" if change.holds else "does not let the step pass"
        _expect(change.holds == step.holds, f"the controller {holds}")
        _expect_text("forced", forced + change.forced, step.forced)
        _expect(change.backtrack == step.backtrack, f"the controller takes back {change.backtrack} tokens")
        _expect_no_token(step, "nothing is sampled where the controller splices")
        if fork.post is not None:
            self._round(fork)

    def _append_forced(self, fork: _CaseFork) -> None:
        if fork.pre is not None:
            fork.taken += fork.pre.ff_tokens
            fork.ahead += self._tokens.decode(fork.pre.ff_tokens)
            fork.pre = fork.pre._replace(ff_tokens=())

    def _before_token(self, fork: _CaseFork, step: Step, num_forks: int) -> None:
        """Check a step in which the controller waits, forks or stops: no token is sampled."""
        forks = f"forks into {num_forks}" if num_forks > 1 else "does not fork"
        _expect(step.forks == max(num_forks, 1), f"the controller {forks}")
        _expect_no_change(step)
        stops = "stopped before the next token" if num_forks == 0 else "waits or forks, which is a step of its own"
        _expect_no_token(step, f"the controller {stops}")
        _expect_text("forced", fork.ahead, step.forced)
        fork.ahead = b""
        fork.stopped = num_forks == 0
        if num_forks > 1:
            self._fork(fork, num_forks)

    def _splice(self, fork: _CaseFork, splice: Splice) -> _Change:
        # The wire counts the token that would have been sampled, which is never shown.
        backtrack = max(0, splice.backtrack - 1)
        num_tokens = len(fork.taken)
        _expect(
            backtrack < num_tokens or (backtrack == num_tokens and bool(splice.ff_tokens)),
            f"the controller takes back {backtrack} of {num_tokens} tokens",
        )
        removed = fork.taken[num_tokens - backtrack :]
        del fork.taken[num_tokens - backtrack :]
        fork.taken += splice.ff_tokens
        fork.post = PostOp(fork.seq_id, list(splice.ff_tokens), splice.backtrack)
        if removed == list(splice.ff_tokens):
            return _Change(0, b"", holds=True)
        return _Change(backtrack, self._tokens.decode(splice.ff_tokens), holds=False)

    def _expect_mask(self, allowed: set[TokenId], step: Step) -> None:
        tokens = self._tokens
        for text in step.allowed:
            token = tokens.first(text.encode())
            _expect(token in allowed, f"{tokens.show(token)} is not allowed; allowed: {self._list(allowed)}")
        for text in step.refused:
            token = tokens.first(text.encode())
            _expect(token not in allowed, f"{tokens.show(token)} is allowed")
        if step.exactly is not None:
            expected = tokens.beginning([text.encode() for text in step.exactly])
            missing, surplus = expected - allowed, allowed - expected - {tokens.eos}
            _expect(not missing, f"not allowed: {self._list(missing)}")
            _expect(not surplus, f"allowed, too: {self._list(surplus)}")
        if step.end is not None:
            may = "may" if tokens.eos in allowed else "may not"
            _expect((tokens.eos in allowed) == step.end, f"the text {may} end here")

    def _sample(self, fork: _CaseFork, step: Step, allowed: set[TokenId]) -> None:
        if step.sample_end:
            to_come = deque([self._tokens.eos])
        else:
            to_come = deque(
                map(TokenId, step.sample_tokens) if step.sample_tokens else self._tokens.split(step.sample.encode())
            )
        if not to_come:
            # Only the mask was expected. A controller stops by allowing only the end-of-sequence token.
            fork.stopped = step.stop and allowed == {self._tokens.eos}
            fork.mid = None if fork.ahead else (None, allowed)
            return
        while to_come:
            token = to_come.popleft()
            text = self._tokens.bytes_of[token] if token < len(self._tokens.bytes_of) else b""
            if fork.ahead and text.startswith(fork.ahead):
                # The forced part is shorter than a token, or exactly as long.
                to_come.extendleft(reversed(list(self._tokens.split(text.removeprefix(fork.ahead)))))
                fork.ahead = b""
                fork.stopped = fork.pre is not None and fork.pre.num_forks == 0
            else:
                _expect(
                    token in allowed, f"{self._tokens.show(token)} cannot be sampled; allowed: {self._list(allowed)}"
                )
                if fork.ahead:
                    fork.ahead = fork.ahead.removeprefix(text)
                else:
                    fork.taken.append(token)
                    fork.post = PostOp(fork.seq_id, [token])
                    self._round(fork)
            if fork.error:
                return
            _expect(not to_come or not fork.stopped, f"the controller stopped after {self._tokens.show(token)}")
            if to_come:
                allowed = self._plain_mask(fork)
            if fork.error:
                return

    def _plain_mask(self, fork: _CaseFork) -> set[TokenId]:
        """Check that the controller only allows and forces between the tokens of one sample."""
        self._append_forced(fork)
        if fork.ahead:
            return self._tokens.beginning([fork.ahead])
        pre, fork.pre = fork.pre, None
        if pre is not None and (pre.suspend or pre.num_forks != 1):
            raise _DiffersError("the controller waits, forks or stops inside the sampled text: split the step there")
        self._ask([MidOp(fork.seq_id)])
        mid, fork.mid = fork.mid, None
        if mid is None:
            return set()
        _expect(mid[0] is None, "the controller splices inside the sampled text: split the step there")
        return mid[1]

    def _expect_error(self, fork: _CaseFork, step: Step) -> None:
        if fork.error:
            _expect(bool(step.error) and step.error in fork.error, f"the guest failed: {fork.error.rstrip()}")
        else:
            _expect(not step.error, "the guest did not fail")

    def _fork(self, parent: _CaseFork, num_forks: int) -> None:
        fresh = [_CaseFork(SeqId(next(self._ids)), list(parent.taken)) for _ in range(num_forks - 1)]
        self._forks += fresh
        self._ask([MidOp(parent.seq_id), *(MidOp(fork.seq_id, parent.seq_id) for fork in fresh)])

    def _round(self, played: _CaseFork, fresh: Sequence[PreOp] = ()) -> None:
        """Report the appended tokens to all guests and ask for their decisions before the next token of `played`."""
        live = [fork for fork in self._forks if not fork.done]
        posts = [fork.post for fork in live if fork.post is not None]
        told = self._runtime.post_pre_process(post_ops=posts, pre_ops=fresh, freed=[])
        for fork in live:
            fork.post = None
            post = told.post.get(fork.seq_id)
            if post is not None and self._noted(fork, post):
                fork.stopped = fork.stopped or (post.result is not None and post.result.stop)
            pre = told.pre[fork.seq_id]
            if not fork.stopped and not fork.error and self._noted(fork, pre) and pre.result is not None:
                before = fork.pre.ff_tokens if fork.pre is not None else ()
                fork.pre = Pre(pre.result.suspend, pre.result.num_forks, (*before, *pre.result.ff_tokens))
                fork.has_waited = pre.result.suspend and fork is not played

    def _ask(self, ops: Sequence[MidOp]) -> None:
        self._runtime.send_mid(ops)
        answers = self._runtime.recv_mid()
        rows = self._runtime.mask_rows(len(ops))
        row_bytes = rows.nbytes // len(ops)
        bits = bytes(rows.cast("B"))
        for number, op in enumerate(ops):
            fork = next(each for each in self._forks if each.seq_id == op.id)
            result = answers.seqs[op.id]
            if self._noted(fork, result):
                change = None if result.result is None else self._splice(fork, result.result)
                fork.mid = (change, _tokens_of(bits[number * row_bytes : (number + 1) * row_bytes]))

    def _noted(self, fork: _CaseFork, result: SeqResult[Any]) -> bool:
        """Record logs and variables. Return False if the guest failed."""
        self.log += result.logs
        fork.log += result.logs
        for command in result.storage:
            write = command["WriteVar"]
            before = self._variables.get(write["name"], b"") if write["op"] == "Append" else b""
            self._variables[write["name"]] = before + bytes.fromhex(write["value"])
        fork.error = fork.error or result.error
        return not fork.error

    def _list(self, tokens: set[TokenId]) -> str:
        shown = [self._tokens.show(token) for token in sorted(tokens)[:_MAX_SHOWN]]
        more = f" and {len(tokens) - _MAX_SHOWN} more" if len(tokens) > _MAX_SHOWN else ""
        return ", ".join(shown) + more if shown else "nothing"


def _tokens_of(bits: bytes) -> set[TokenId]:
    whole = int.from_bytes(bits, "little")
    return {TokenId(k) for k, bit in enumerate(bin(whole)[:1:-1]) if bit == "1"}


def _expect(holds: bool, difference: str) -> None:
    if not holds:
        raise _DiffersError(difference)


def _expect_no_token(step: Step, why: str, *, unless: bool = False) -> None:
    """Refuse keys about masks and sampling in a step that has neither: the keys would be ignored."""
    said = _said(step)
    _expect(unless or not said, f"{why}, but the step has {' and '.join(said)}")


def _said(step: Step) -> list[str]:
    """Return the keys of the step that concern the next token."""
    return [each.name for each in fields(step) if each.name in _TOKEN and getattr(step, each.name) != each.default]


def _expect_no_change(step: Step) -> None:
    _expect(step.backtrack == 0, "the controller takes nothing back")
    _expect(not step.holds, "the controller does not let the step pass")


def _expect_text(what: str, found: bytes, expected: str) -> None:
    if found != expected.encode():
        raise _DiffersError(f"{what} {show(found) if found else 'nothing'}, expected {show(expected.encode())}")
