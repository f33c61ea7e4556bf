"""Guests that play a script, and requests for them."""

from typing import Any

from aici_base.ids import TokenId
from aici_engine.config import SamplingParams
from aici_engine.engine import Engine
from aici_engine.request import ControllerCall, Request, RequestHandle
from aici_runtime.wire import Pre, Splice
from tests.engine.support import (
    EOS,
    GO_ON,
    Guest,
    encode,
)


class Spell(Guest):
    """Allows only the argument's bytes, then EOS, and stops after EOS."""

    at = 0

    def mid(self) -> Any:
        data = self.argument.encode()
        return [data[self.at]] if self.at < len(data) else [EOS]

    def post(self, tokens: list[TokenId], backtrack: int) -> bool:
        super().post(tokens, backtrack)
        self.at += len(tokens)
        return tokens == [EOS]


class Force(Guest):
    """Forces the argument from `pre`, then allows a single token and stops."""

    said = False

    def pre(self) -> Pre:
        if self.said:
            return GO_ON
        self.said = True
        return Pre(suspend=False, num_forks=1, ff_tokens=tuple(encode(self.argument)))

    def mid(self) -> Any:
        return encode("!")

    def post(self, tokens: list[TokenId], backtrack: int) -> bool:
        super().post(tokens, backtrack)
        return True


class Script(Guest):
    """`argument`: the answers of `mid`, in turn. Then stops, from `pre`."""

    def __init__(self, argument: Any) -> None:
        super().__init__(argument)
        self.answers = list(argument)

    def pre(self) -> Pre:
        return GO_ON if self.answers else Pre(suspend=False, num_forks=0, ff_tokens=())

    def mid(self) -> Any:
        return self.answers.pop(0)


class Suspend(Script):
    """`argument`: how often to suspend before saying `x` and stopping."""

    def __init__(self, argument: int) -> None:
        super().__init__([encode("x")])
        self.left = argument

    def pre(self) -> Pre:
        self.left -= 1
        return super().pre() if self.left < 0 else Pre(suspend=True, num_forks=1, ff_tokens=())


class Late(Spell):
    """Is late for its first mask, and then `argument` times."""

    def __init__(self, argument: int) -> None:
        super().__init__("ab")
        self.left = argument
        self.is_late = False

    def mid(self) -> Any:
        if not self.is_late and self.left:
            self.is_late = True
            return Splice(1, (), late=True)
        return super().mid()

    def pre(self) -> Pre:
        if self.is_late and self.left:
            self.left -= 1
            return Pre(suspend=True, num_forks=1, ff_tokens=(), late=True)
        self.is_late = False
        return super().pre()


class Forever(Guest):
    """Removes every token to be sampled, without a replacement."""

    def mid(self) -> Any:
        return Splice(1, ())


class FailPre(Guest):
    def pre(self) -> str:
        return "Error (pre): it broke"


class StopItself(Guest):
    def mid(self) -> str:
        return "Error (mid): so long\n*** aici_host_stop()"


GUESTS = {c.__name__.lower(): c for c in (Guest, Spell, Force, Script, Suspend, Late, Forever, FailPre, StopItself)}


def submit(engine: Engine, name: str, argument: Any = None, **sampling: Any) -> RequestHandle:
    sampling = {"temperature": 0.0} | sampling
    return engine.submit(
        Request(prompt="Hello", sampling=SamplingParams(**sampling), controller=ControllerCall(name, argument))
    )
