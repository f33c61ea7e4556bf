"""What scripts of the guest pyctrl import, as `aici` or as `pyaici.server`.

What is awaited is a step of the sequence: text that is appended, text that the model generates, a fork, a wait. One
step is awaited at a time, outside functions or in a coroutine that is started.

    import aici

    await aici.FixedTokens("The capital of France is ")
    city = await aici.gen_text(regex="[A-Z][a-z]+", max_tokens=10)
"""

from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from typing import Any, Literal, final

log_level: int
"""0: only what the script prints; 1, as it is at first: what came of steps; 2: also what they are to do; 3: all."""

def start(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Runs the coroutine when the script has been read; the sequence ends when it ends. At most one can be started."""

def test(coroutine: Coroutine[Any, Any, Any]) -> None:
    """`start` that prints `TEST OK` at the end."""

# Text and tokens.

def tokenize(text: str | bytes) -> list[int]:
    """The tokens of a text, no special ones among them."""

def detokenize(tokens: Sequence[int]) -> bytes:
    """Special tokens have no text."""

def get_tokens() -> list[int]:
    """The prompt, and all that came of steps so far."""

def get_prompt_len() -> int: ...
async def GetPrompt() -> list[int]:
    """The tokens of the prompt."""

def eos_token() -> int:
    """The token that ends a sequence."""

def token_repr(token: int) -> str:
    """For logs: the text of a token as JSON, or `EOS`, `HEX[ff]`, `EMPTY[3]`, `OOB[100000]`."""

def tokens_repr(tokens: Sequence[int]) -> str:
    """For logs: `"Hel‧lo"`."""

class Label:
    """A place: the end of the text when it was made."""

    ptr: int
    """The number of tokens before it."""

    def __init__(self) -> None: ...
    def tokens_since(self) -> list[int]: ...
    def text_since(self) -> str: ...

# Steps.

async def FixedTokens(text: str | bytes, following: Label | None = None) -> None:
    """Appends the text, after what follows the label, if there is one, was removed."""

async def gen_tokens(
    regex: str | None = None,
    yacc: str | None = None,
    substring: str | None = None,
    substring_end: str | None = None,
    options: Sequence[str] | None = None,
    store_var: str | None = None,
    stop_at: str | None = None,
    max_tokens: int = 20,
    choices: Sequence[str] | None = None,
    json_schema: str | bool | Mapping[str, Any] | None = None,
    max_bytes: int | None = None,
    max_words: int | None = None,
) -> list[int]:
    """Lets the model generate until it ends the text, the constraint can only end, the text has `stop_at` in it (which
    stays, and so does the rest of that token), or there are `max_tokens`. No token makes the text longer than
    `max_bytes` or begins a word beyond `max_words` (words end at a space, tab or newline): where no other may come, it
    is over.

    At most one of: `regex`; `yacc`, the text of a grammar (.y); `substring`, any part of this text that begins with a
    word, then `substring_end` (a double quote when there is none); `choices`, one of these texts; `options`, one of
    these in the tokens that the tokenizer makes of it; `json_schema`, as JSON or as what `json.dumps` makes JSON of.
    `store_var` is the variable that the text goes to.
    """

async def gen_text(
    regex: str | None = None,
    yacc: str | None = None,
    substring: str | None = None,
    substring_end: str | None = None,
    options: Sequence[str] | None = None,
    store_var: str | None = None,
    stop_at: str | None = None,
    max_tokens: int = 20,
    choices: Sequence[str] | None = None,
    json_schema: str | bool | Mapping[str, Any] | None = None,
    max_bytes: int | None = None,
    max_words: int | None = None,
) -> str:
    """The text of `gen_tokens`; what is no UTF-8 in it becomes U+FFFD."""

async def fork(branches: int | Sequence[Branch | MidProcessResult]) -> int:
    """So many copies of the program go on, this one among them. The result is the number of this one, from 0. With a
    list, each copy takes its own first step."""

async def wait_vars(*names: str) -> list[bytes]:
    """Waits until all these variables are set: by another fork. Returns their values."""

async def Noop() -> None:
    """Lets one step of the others pass."""

def fork_supported() -> Literal[True]: ...
def backtrack_supported() -> Literal[True]: ...
def get_config(name: str) -> int:
    """1 for what the host can do (`fork`, `backtrack`, `ff_tokens`), else 0."""

def self_seq_id() -> int:
    """The number of the sequence in the engine."""

# Variables: shared by all forks of a request.

def get_var(name: str) -> bytes | None:
    """None when it was never set."""

def set_var(name: str, value: str | bytes) -> None: ...
def append_var(name: str, value: str | bytes) -> None: ...
def check_var(name: str, expected: str | bytes) -> None:
    """AssertionError when the variable has another value, or none."""

def check_vars(expected: Mapping[str, str | bytes]) -> None: ...

# Token by token.

@final
class TokenSet:
    """A set of tokens, read and written like a list of bools. Empty when it is made."""

    def __init__(self) -> None: ...
    def __len__(self) -> int:
        """The number of all tokens. `bool()` says whether any is in the set."""

    def __bool__(self) -> bool: ...
    def __iter__(self) -> Iterator[bool]: ...
    def __getitem__(self, token: int) -> bool: ...
    def __setitem__(self, token: int, allowed: bool) -> None: ...
    def set_all(self, allowed: bool) -> None: ...
    def num_set(self) -> int:
        """The number of tokens in the set."""

def all_tokens() -> TokenSet: ...

class Constraint:
    """What generated text must be; this one allows anything. Can be subclassed."""

    def __init__(self) -> None: ...
    def eos_allowed(self) -> bool:
        """May the text end here?"""

    def eos_forced(self) -> bool:
        """May the text end here, and can nothing follow?"""

    def token_allowed(self, token: int) -> bool: ...
    def append_token(self, token: int) -> None:
        """ValueError when it is not allowed."""

    def allow_tokens(self, tokens: TokenSet) -> None:
        """Adds the tokens that may come next."""

# ValueError says what is wrong in what these are given.
def RegexConstraint(pattern: str) -> Constraint: ...
def CfgConstraint(grammar: str) -> Constraint: ...
def SubStrConstraint(template: str, stop_at: str = '"') -> Constraint: ...
def ChooseConstraint(options: Sequence[str]) -> Constraint: ...
def ChoicesConstraint(choices: Sequence[str]) -> Constraint: ...
def JsonSchemaConstraint(schema: str | bool | Mapping[str, Any]) -> Constraint: ...

class Splice:
    """Removes `backtrack` tokens, then appends. `when_sampled` must be empty."""

    backtrack: int
    ff_tokens: Sequence[int]
    def __init__(self, when_sampled: Sequence[int] = (), backtrack: int = 0, ff_tokens: Sequence[int] = ()) -> None: ...

class Branch:
    """What a copy does first: either one splice, or a token of a set."""

    splices: Sequence[Splice]
    sample_mask: TokenSet | None
    def __init__(self, splices: Sequence[Splice] = (), sample_mask: TokenSet | None = None) -> None: ...

class MidProcessResult:
    """What is wanted in a step."""

    @staticmethod
    def of(branch: Branch | MidProcessResult) -> MidProcessResult: ...
    @staticmethod
    def bias(mask: TokenSet) -> MidProcessResult:
        """One of these tokens is sampled."""

    @staticmethod
    def splice(backtrack: int, tokens: Sequence[int]) -> MidProcessResult:
        """`backtrack` tokens are removed, then `tokens` appended."""

    @staticmethod
    def stop() -> MidProcessResult:
        """The sequence ends."""

    @staticmethod
    def noop() -> MidProcessResult:
        """Nothing happens in this step."""

    @staticmethod
    def skip() -> MidProcessResult:
        """This step is not taken; what comes after it may use it."""

class NextToken(Awaitable[list[int] | None]):
    """One step that the script decides about: a subclass defines `mid_process`. Awaiting it takes the step, and can be
    done again and again. The result are the tokens that were appended, None when the step was skipped."""

    curr_tokens: list[int] | None
    fork_group: Sequence[int]
    """The sequences that were forked from one in this step, this one among them."""

    def mid_process(self) -> MidProcessResult | Branch: ...
    def post_process(self, backtrack: int, tokens: list[int]) -> None:
        """After the step: `tokens` were appended after `backtrack` were removed."""

    def __await__(self) -> Generator[Any, Any, list[int] | None]: ...

class ConstrainedToken(NextToken):
    """One token of a constraint, which is made at the first step."""

    def __init__(self, make_constraint: Callable[[], Constraint]) -> None: ...

class StopToken(NextToken):
    """Ends the sequence."""
