"""The answers of a chat."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from aici_cli.chat.dialogue import Dialogue, Message, message
from aici_cli.constraint import Flags, constraint_from, given_kinds
from aici_cli.output import say
from aici_cli.render import stream_text
from aici_cli.report import report

if TYPE_CHECKING:
    import aici

RETRY_TEMPERATURE: Final = 0.8
"""For another answer if the temperature is 0, which would give the same answer again."""


class Session:
    """A conversation with a model, under a constraint or none. Answers go to stdout as they come."""

    def __init__(
        self,
        llm: "aici.LLM",
        sampling: Mapping[str, Any],
        flags: Flags,
        constraint: "aici.Constraint[Any] | None",
        *,
        on_server: bool,
    ) -> None:
        self.dialogue = Dialogue()
        self._llm = llm
        self._sampling = sampling
        self._schema_options = flags.schema_options
        self._constraint = constraint
        self._kind = "".join(given_kinds(flags)).removeprefix("--")
        self._on_server = on_server
        self._num_tries = 0

    @property
    def prompt(self) -> str:
        """Return the text before a typed line: it names the constraint."""
        return f"{self._kind} >>> ".lstrip()

    def constrain(self, flags: Flags) -> None:
        """Put the next answers under the constraint of `flags`, or under none. Raise UsageError for a wrong one."""
        self._constraint = constraint_from(flags, on_server=self._on_server)
        self._kind = "".join(given_kinds(flags)).removeprefix("--")

    def constrain_schema(self, schema: str) -> None:
        """Put the next answers under a JSON Schema, read with the options that the command line has."""
        self.constrain(Flags(json_schema=schema, schema_options=self._schema_options))

    def ask(self, text: str) -> None:
        """Answer a message. A failed answer leaves the conversation as it was."""
        self._num_tries = 0
        self._answer([*self.dialogue.turns, message("user", text)], self._sampling)

    def retry(self, temperature: float | None) -> None:
        """Answer the last message of the user again. A failed answer leaves the old answer."""
        turns = self.dialogue.question()
        self._num_tries += 1
        sampling = dict(self._sampling)
        if temperature is not None:
            sampling["temperature"] = temperature
        elif not sampling["temperature"]:
            sampling["temperature"] = RETRY_TEMPERATURE
            say(f"note: at temperature 0 the answer would be the same; this one has temperature {RETRY_TEMPERATURE}")
        if sampling["seed"] is not None:
            sampling["seed"] += self._num_tries
        self._answer(turns, sampling)

    def _answer(self, turns: Sequence[Message], sampling: Mapping[str, Any]) -> None:
        result, is_stopped = self._stream([*Dialogue(self.dialogue.system, turns).messages()], sampling)
        if is_stopped:
            say("note: stopped" if result.text else "note: stopped before the answer began; the message is dropped")
        else:
            report([result], log=False, constrained=self._constraint is not None)
            self._tell_cut(result)
        if result.text or not is_stopped:
            self.dialogue.turns = [*turns, message("assistant", result.text)]

    def _stream(self, messages: list[Message], sampling: Mapping[str, Any]) -> "tuple[aici.Result[Any], bool]":
        """Return the result, and whether Ctrl-C stopped the answer. Over a pipe, Ctrl-C stops the program."""
        from aici.local import threaded

        with self._llm.chat_stream(messages, self._constraint, **sampling) as stream:
            # Ctrl-C interrupts the wait in this thread, and never the reading: no event is lost.
            reading = threaded(lambda: stream_text(stream, newline=True))
            try:
                return reading.result(), False
            except KeyboardInterrupt:
                stream.close()
                if not sys.stdin.isatty():
                    raise
                return reading.result(), True

    def _tell_cut(self, result: "aici.Result[Any]") -> None:
        from aici import FinishReason

        if self._constraint is None and result.finish_reason is FinishReason.LENGTH:
            say("note: stopped at --max-tokens or the end of the context")
