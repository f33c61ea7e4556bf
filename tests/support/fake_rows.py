"""A fake of vLLM behind `RowEngine`: rows that only grow, parts of prompts, rows that are put off."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aici_base.ids import TokenId
from aici_engine.events import TokenScore
from aici_engine.vllm.row_engine import NewRow, RowToken, Words
from tests.engine.support import EOS, VOCAB_SIZE


@dataclass
class FakeRow:
    """`num_computed`: tokens of the row that are computed."""

    new: NewRow
    tokens: list[TokenId]
    num_computed: int = 0


@dataclass
class FakeRowEngine:
    """Computes at most `chunk` tokens of a row in a step. Every `puts_off`-th step gives its first row no token.

    The model says "a", "b", "c" and so on by the length of the row, and what a mask allows next to that.
    """

    chunk: int = 8
    puts_off: int = 0
    context: int = 200
    num_logits: int = VOCAB_SIZE
    num_pages: int = 100
    is_elsewhere: bool = False
    rows: dict[str, FakeRow] = field(default_factory=dict)
    num_steps: int = 0
    num_added: int = 0
    num_preemptions: int = 0
    num_probes: int = 0
    is_dead: bool = False
    closed: bool = False

    @property
    def usage(self) -> float:
        return min(1.0, len(self.rows) / 100)

    def add(self, row: NewRow) -> None:
        assert row.tokens
        assert row.room > 0
        assert row.key not in self.rows
        self.num_added += 1
        self.rows[row.key] = FakeRow(row, list(row.tokens))

    def remove(self, key: str) -> None:
        self.rows.pop(key, None)

    def step(self, ask: Callable[[list[str]], None], masks: Callable[[], Mapping[str, Words]]) -> list[RowToken]:
        self.num_steps += 1
        for row in self.rows.values():
            row.num_computed = min(len(row.tokens), row.num_computed + self.chunk)
        keys = [key for key, row in self.rows.items() if row.num_computed == len(row.tokens)]
        ask(keys)
        allowed = masks()
        assert allowed.keys() <= set(keys)
        if self.puts_off and self.num_steps % self.puts_off == 0:
            del keys[:1]
        return [self._token(key, self.rows[key], allowed.get(key)) for key in keys]

    def check_health(self) -> None:
        self.num_probes += 1
        if self.is_dead:
            raise RuntimeError("a worker is dead")

    def close(self) -> None:
        self.closed = True

    def _token(self, key: str, row: FakeRow, mask: Words | None) -> RowToken:
        wanted = ord("a") + len(row.tokens) % 26
        order = [(wanted + k) % VOCAB_SIZE for k in range(VOCAB_SIZE)]
        token = next(t for t in order if mask is None or mask[t // 32] >> t % 32 & 1)
        row.tokens.append(TokenId(token))
        is_last = len(row.tokens) == len(row.new.tokens) + row.new.room
        is_last |= token == EOS and not row.new.is_controlled
        if is_last:
            del self.rows[key]
        return RowToken(key, TokenScore(TokenId(token), -0.5, ((TokenId(token), -0.5),)), 0, is_last)
