"""Runs a turn. Call arguments are always valid against the tool's schema.

One generation cannot switch between free and constrained text. A turn is therefore a chain of generations. Every
generation continues where the previous generation ended:

    peek      a few tokens that tell whether the model thinks          (if the prompt leaves it open)
    thought   free text, until the end tag or the budget
    text      free text, until the model writes a mark or ends         (tool_choice auto)
    document  JSON under a schema, or nothing but the mark             (tool_choice auto, with a `document`)
    call      JSON that the tools' schemas allow                       (required and named begin here)
    head      the beginning of a call, which names the tool            (with `arguments`, in place of call)
    input     the tool's arguments, under the tool's own constraint
    more      the end of the calls, or the beginning of another        (if several calls are allowed)

The mark is `<tool_call>` for most models; `tool_syntax` has them all.
"""

import contextlib
import itertools
import json
import re
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Generic, TypeVar

from aici_engine.chat.call_reader import CallReader
from aici_engine.chat.tools import CallArguments, CallStart
from aici_engine.chat.turn import (
    ChatModel,
    ChatTurn,
    Delta,
    GenerationEnd,
    Named,
    Removed,
    Scores,
    Text,
    Thought,
    TurnEnd,
    TurnUsage,
    callable_tools,
)
from aici_engine.sampling_params import MAX_BAD_RUNS, SamplingParams

C = TypeVar("C")
_MAX_CALLS = 16


async def run_chat_turn(model: ChatModel[C], request: ChatTurn[C]) -> AsyncGenerator[Delta, None]:
    """Yield the deltas of a turn, TurnEnd last. A failure is raised. Closing the generator ends the sequence."""
    async with contextlib.AsyncExitStack() as generations:
        async for delta in _Turn(model, request, generations).run():
            if isinstance(delta, TurnEnd) and delta.stop is not None and request.keeps_stop:
                yield Text(delta.stop)
                delta = replace(delta, text=delta.text + delta.stop)
            yield delta


class _Turn(Generic[C]):
    """The state of a turn. Its sequences end when `generations` is closed."""

    def __init__(self, model: ChatModel[C], request: ChatTurn[C], generations: contextlib.AsyncExitStack) -> None:
        self._model = model
        self._request = request
        self._generations = generations
        self._syntax = request.syntax
        self._sampling = request.sampling
        # Only the end of the JSON ends a call. The tokens of a call are not part of the text, so no log-probabilities.
        self._in_calls = replace(
            request.sampling,
            stop=(),
            logprobs=None,
            ignore_eos=False,
            min_tokens=0,
            stop_token_ids=(),
            bad_tokens=(),
        )
        self._prompt = request.prompt
        self._knows_cached = False
        self._answer_end: str | None = None
        self._usage = TurnUsage(len(request.prompt), 0, 0)
        self._text = ""
        self._said = ""
        self._stop: str | None = None
        self._last_token: int | None = None
        self._is_full = False
        self._wants_call = False
        self._call_text = ""
        self._has_call_begun = False

    async def run(self) -> AsyncGenerator[Delta, None]:
        choice = self._request.tool_choice if self._request.tools else "none"
        async for thought in self._think():
            yield thought
            if isinstance(thought, TurnEnd):
                return
        if choice == "none":
            async for delta in self._generate(self._free(self._sampling), self._request.controller):
                yield delta
            self._text = self._said
            yield self._end()
            return
        if choice == "auto":
            async for delta in self._document() if self._request.document else self._free_text():
                yield delta
            if not self._wants_call:
                yield self._end()
                return
        self._go_on(self._text + self._syntax.opening)
        for num_calls in range(_MAX_CALLS):
            async for part in self._call_in_parts() if self._request.arguments else self._call():
                yield part
            if self._is_full:
                if self._has_call_begun or not num_calls:
                    yield self._end()
                    return
                break
            self._go_on(self._call_text)
            if not self._request.parallel or isinstance(choice, Named) or not await self._more():
                break
        yield TurnEnd("tool_calls", self._usage, self._text)

    async def _think(self) -> AsyncGenerator[Thought | Scores | TurnEnd, None]:
        """Generate the thought, if the model thinks. Yields the TurnEnd of a turn that ends with the thought."""
        thinking = self._request.thinking
        if thinking is None or not (thinking.is_open or await self._begins_to_think()):
            return
        if not thinking.is_open:
            self._go_on(thinking.tags.begin)
        end = thinking.tags.end
        if thinking.budget != 0:
            sampling = self._until(end, replace(self._in_calls, bad_tokens=self._request.sampling.bad_tokens))
            async for delta in self._thought(sampling, thinking.budget):
                yield delta
            is_over = self._has_stopped_at(end)
            if not is_over and self._is_full and (thinking.budget is None or self._usage.thought < thinking.budget):
                yield self._end()
                return
            if not is_over and not self._is_full and not self._must_say_more:
                yield self._end()
                return
            if not is_over and not self._said.endswith("\n"):
                self._said += "\n"
            self._go_on(self._said)
        self._stop, self._is_full = None, False
        self._go_on(end + thinking.tags.after_end)
        self._answer_end = thinking.tags.answer_end
        if self._answer_end is not None and self._request.controller is None:
            self._sampling = self._until(self._answer_end, self._sampling)

    @property
    def _must_say_more(self) -> bool:
        """A thought without an answer would break the constraint."""
        choice = self._request.tool_choice if self._request.tools else "none"
        return (
            self._request.controller is not None or self._request.document is not None or choice not in ("none", "auto")
        )

    async def _thought(self, sampling: SamplingParams, budget: int | None) -> AsyncGenerator[Thought | Scores, None]:
        """Yield the text of a thought, without line breaks at its ends."""
        before = self._usage.output
        held, has_begun = "", False
        async for delta in self._generate(sampling, None, at_most=budget):
            if isinstance(delta, Scores):
                yield delta
            elif isinstance(delta, Text):
                text = held + delta.text
                text = text if has_begun else text.lstrip("\n")
                ready = text.rstrip("\n")
                held, has_begun = text[len(ready) :], has_begun or bool(ready)
                yield Thought(ready, delta.token)
        self._usage = replace(self._usage, thought=self._usage.output - before)

    async def _begins_to_think(self) -> bool:
        """Return whether the model's first tokens are the begin tag. If not, the tokens are forgotten, and the answer
        begins anew, without the tag. The tokens do not count: they are part of the answer, or of its prompt."""
        thinking = self._request.thinking
        assert thinking is not None
        tag = self._model.encode(thinking.tags.begin)
        if len(self._sampling.bad_tokens) < MAX_BAD_RUNS:
            self._sampling = replace(self._sampling, bad_tokens=(*self._sampling.bad_tokens, tuple(tag)))
        room = self._model.max_len - len(self._prompt)
        if self._request.sampling.max_tokens is not None:
            room = min(room, self._request.sampling.max_tokens)
        if thinking.budget == 0 or room <= len(tag):
            return False
        sampling = self._until(thinking.tags.begin, replace(self._in_calls, max_tokens=len(tag)))
        async with self._model.generate(self._prompt, sampling, None) as generation:
            async for _ in generation:
                pass
            self._ended(generation.end())
        return self._has_stopped_at(thinking.tags.begin) and not self._said.strip()

    def _free(self, sampling: SamplingParams) -> SamplingParams:
        """Return the sampling of an answer that a controller, if any, can take."""
        return sampling if self._request.controller is None else self._request.sampling

    def _until(self, text: str, sampling: SamplingParams) -> SamplingParams:
        """Return sampling that stops at a text, or at the special token that is called so."""
        token = self._model.special_token(text)
        if token is not None:
            return replace(sampling, stop_token_ids=(*sampling.stop_token_ids, token))
        return replace(sampling, stop=(*sampling.stop, text))

    def _has_stopped_at(self, text: str) -> bool:
        token = self._model.special_token(text)
        return self._stop == text if token is None else self._last_token == token

    async def _call(self) -> AsyncGenerator[CallStart | CallArguments, None]:
        """Generate a call under one schema of all tools."""
        assert self._request.calls is not None
        reader = CallReader(callable_tools(self._request.tools, self._request.tool_choice), self._syntax)
        async for text in self._generate(self._in_calls, self._request.calls):
            if isinstance(text, Text):
                for part in reader.read(text.text):
                    yield part
        self._call_text, self._has_call_begun = reader.text, reader.started

    async def _call_in_parts(self) -> AsyncGenerator[CallStart | CallArguments, None]:
        """Generate the beginning of a call, which names the tool, then the arguments under the tool's constraint."""
        before = self._prompt
        call_id = self._syntax.new_call_id()
        self._has_call_begun = False
        name = await self._name()
        if self._is_full:
            return
        head, self._has_call_begun = self._syntax.head(name, call_id), True
        self._prompt = before
        self._go_on(head)
        yield CallStart(call_id, name)
        arguments = self._request.arguments[name]
        written = ""
        async for part in (
            self._text_input(arguments.constraint) if arguments.is_text else self._json(arguments.constraint)
        ):
            written += part.text
            yield part
        self._prompt, self._call_text = before, f"{head}{written}{self._syntax.tail}"

    async def _name(self) -> str:
        """Let the model name a tool. A syntax with headers has special tokens around the name, which a regular
        expression cannot have: the name alone is generated."""
        header = self._syntax.header
        if header is None:
            heads = {self._syntax.head(name): name for name in self._request.arguments}
        else:
            heads = {name: name for name in self._request.arguments}
            self._go_on(header.before_name)
            if len(heads) == 1:
                return next(iter(heads))
        controller = await self._model.regex("|".join(map(_escaped, heads)))
        async for _ in self._generate(self._in_calls, controller):
            pass
        return "" if self._is_full else heads[self._said]

    async def _json(self, constraint: C) -> AsyncGenerator[CallArguments, None]:
        async for text in self._generate(self._in_calls, constraint):
            if isinstance(text, Text) and text.text:
                yield CallArguments(text.text)

    async def _text_input(self, constraint: C) -> AsyncGenerator[CallArguments, None]:
        """Yield the arguments `{"input": ...}` around a text, which the model ends with a quote."""
        begin = '{"input": "'
        self._go_on(begin)
        yield CallArguments(begin)
        held = ""
        async for text in self._generate(self._in_calls, constraint):
            if isinstance(text, Text):
                held += text.text
                ready, held = held[:-1], held[-1:]
                if ready:
                    yield CallArguments(json.dumps(ready, ensure_ascii=False)[1:-1])
        if not self._is_full:
            yield CallArguments('"}')

    async def _free_text(self) -> AsyncGenerator[Text | Removed | Scores, None]:
        """Yield text up to a mark. A mark that counts only at the beginning of an answer is text elsewhere."""
        sampling = self._sampling
        for mark in self._syntax.marks:
            sampling = self._until(mark, sampling)
        async for delta in self._generate(sampling, None):
            yield delta
        self._text = self._said
        if not any(map(self._has_stopped_at, self._syntax.marks)):
            return
        if not self._syntax.is_whole_answer or not self._text.strip():
            self._wants_call = True
            self._text = "" if self._syntax.is_whole_answer else self._text
            return
        self._text += self._stop or ""
        if self._stop:
            yield Text(self._stop)
        self._go_on(self._text)
        async for delta in self._generate(self._sampling, None):
            yield delta
        self._text += self._said

    async def _document(self) -> AsyncGenerator[Text | Removed | Scores, None]:
        """Yield a JSON document, or nothing if the model wants a call. The first character decides."""
        begun, mark = "", self._syntax.mark
        async for delta in self._generate(self._request.sampling, self._request.document):
            if isinstance(delta, Text):
                begun = begun or delta.text[:1]
            if begun != mark[0]:
                yield delta
        self._wants_call = self._said == mark
        self._text = "" if begun == mark[0] else self._said

    async def _more(self) -> bool:
        """Let the model choose to end or to begin another call; return True for another call."""
        syntax = self._syntax
        if syntax.between is None:
            return False
        common = _common_beginning(syntax.between, syntax.closing)
        more, end = syntax.between[len(common) :], syntax.closing[len(common) :]
        self._go_on(common)
        mark = _pieces(more)[-1]
        if self._model.special_token(mark) is not None:
            # No constraint can write a special token: the model's own next tokens tell.
            num_tokens = len(self._model.encode(more))
            async for _ in self._generate(self._until(mark, self._in_calls), None, at_most=num_tokens):
                pass
            wanted = self._has_stopped_at(mark)
        else:
            pattern = f"{_escaped(end)}|{_escaped(more)}" if end else f"({_escaped(more)})?"
            texts = self._generate(self._in_calls, await self._model.regex(pattern))
            wanted = "".join([text.text async for text in texts if isinstance(text, Text)]).endswith(more)
        if wanted:
            self._go_on(more)
        return wanted

    async def _generate(
        self, sampling: SamplingParams, controller: C | None, *, at_most: int | None = None
    ) -> AsyncGenerator[Text | Removed | Scores, None]:
        """Run one generation of the chain, of `at_most` tokens. Yield nothing if earlier generations used up the
        tokens."""
        used = self._usage
        if used.output or at_most is not None:
            rooms = [self._model.max_len - len(self._prompt)]
            if at_most is not None:
                rooms.append(at_most)
            if sampling.max_tokens is not None:
                rooms.append(sampling.max_tokens - used.output)
            if min(rooms) <= 0:
                self._said, self._is_full = "", True
                return
            min_tokens = max(0, sampling.min_tokens - used.output)
            sampling = replace(sampling, max_tokens=min(rooms), min_tokens=min_tokens)
        generation = await self._generations.enter_async_context(
            self._model.generate(self._prompt, sampling, controller)
        )
        async for delta in generation:
            yield delta
        end = generation.end()
        if end.tail:
            yield Text(end.tail)
        self._ended(end)
        self._usage = replace(self._usage, sampled=used.sampled + end.sampled, forced=used.forced + end.forced)

    def _ended(self, end: GenerationEnd) -> None:
        self._said, self._stop, self._last_token = end.text, end.stop, end.last_token
        self._is_full = end.is_full
        if not self._knows_cached:
            self._knows_cached = True
            self._usage = replace(self._usage, cached=end.cached)

    def _go_on(self, text: str) -> None:
        self._prompt = self._prompt + self._model.encode(text)

    def _end(self) -> TurnEnd:
        if self._is_full:
            return TurnEnd("length", self._usage, self._text)
        stop = None if self._stop == self._answer_end else self._stop
        return TurnEnd("end" if stop is None else "stop", self._usage, self._text, stop)


def _common_beginning(one: str, other: str) -> str:
    """Return the common beginning of two texts. A special token is in the beginning as a whole, or not at all."""
    common = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(_pieces(one), _pieces(other), strict=False))
    return "".join(piece for piece, _ in common)


def _pieces(text: str) -> list[str]:
    """Return a text as characters and as names of special tokens."""
    return re.findall(r"<[^<>]+>|\[[A-Z_]+\]|.", text, re.DOTALL)


def _escaped(text: str) -> str:
    """Return a pattern of a text. `re.escape` escapes spaces, too, which not every engine takes."""
    return re.sub(r"[\\.^$|?*+()\[\]{}]", r"\\\g<0>", text)
