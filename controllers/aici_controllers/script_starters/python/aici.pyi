"""The module for scripts of the controller pyctrl, imported as `aici` or as `pyaici.server`.

A script awaits steps of the sequence: append text, let the model generate text, fork, wait. One step is awaited at a
time, outside functions or in a coroutine started by `start`.

    import aici

    await aici.FixedTokens("The capital of France is ")
    city = await aici.gen_text(regex="[A-Z][a-z]+", max_tokens=10)
"""

from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from typing import Any, Literal, final

log_level: int
"""0: only the script's own prints; 1 (default): also results of steps; 2: also the steps; 3: everything."""

def start(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run the coroutine after the script has been read; the sequence ends when the coroutine ends. Call at most
    once."""

def test(coroutine: Coroutine[Any, Any, Any]) -> None:
    """As `start`, but print `TEST OK` at the end."""

# Text and tokens.

def tokenize(text: str | bytes) -> list[int]:
    """Return the tokens of a text, without special tokens."""

def detokenize(tokens: Sequence[int]) -> bytes:
    """Return the text of tokens as bytes. Special tokens have no text."""

def get_tokens() -> list[int]:
    """Return the prompt and all tokens of steps so far."""

def get_prompt_len() -> int: ...
async def GetPrompt() -> list[int]:
    """Return the tokens of the prompt."""

def eos_token() -> int:
    """Return the end-of-sequence token."""

def token_repr(token: int) -> str:
    """For logs: the text of a token as JSON, or `EOS`, `HEX[ff]`, `EMPTY[3]`, `OOB[100000]`."""

def tokens_repr(tokens: Sequence[int]) -> str:
    """For logs: `"Hel‧lo"`."""

class Label:
    """A position: the end of the text when the label was made."""

    ptr: int
    """The number of tokens before the label."""

    def __init__(self) -> None: ...
    def tokens_since(self) -> list[int]: ...
    def text_since(self) -> str: ...

# Steps.

async def FixedTokens(text: str | bytes, following: Label | None = None) -> None:
    """Append the text. With `following`, first remove everything after the label."""

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
    """Let the model generate tokens. The step ends when the model ends the text, when the constraint is complete, when
    the text contains `stop_at` (which stays, as does the rest of its token), or after `max_tokens`. No token may make
    the text longer than `max_bytes`, or begin a further word after `max_words` (words end at a space, tab or newline);
    if no other token is left, the step ends.

    At most one constraint: `regex`; `yacc`, the text of a grammar (.y); `substring`, any part of this text that begins
    with a word, then `substring_end` (default: a double quote); `choices`, one of these texts; `options`, one of these
    texts in the tokenizer's own tokens; `json_schema`, as JSON or as a value for `json.dumps`. `store_var`: a variable
    that stores the text.
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
    """As `gen_tokens`, but return the text; bytes that are not UTF-8 become U+FFFD."""

async def fork(branches: int | Sequence[Branch | MidProcessResult]) -> int:
    """Continue as several copies of the program, including this copy. Return the index of the copy, from 0. With a
    list, every copy takes its first step from the list."""

async def wait_vars(*names: str) -> list[bytes]:
    """Wait until another fork has set all these variables. Return the values."""

async def Noop() -> None:
    """Let one step of the other forks pass."""

def fork_supported() -> Literal[True]: ...
def backtrack_supported() -> Literal[True]: ...
def get_config(name: str) -> int:
    """Return 1 for capabilities of the engine (`fork`, `backtrack`, `ff_tokens`), else 0."""

def self_seq_id() -> int:
    """Return the number of the sequence in the engine."""

# Variables: shared by all forks of a request.

def get_var(name: str) -> bytes | None:
    """Return the value of a variable; None if never set."""

def set_var(name: str, value: str | bytes) -> None: ...
def append_var(name: str, value: str | bytes) -> None: ...
def check_var(name: str, expected: str | bytes) -> None:
    """Raise AssertionError if the variable has another value, or none."""

def check_vars(expected: Mapping[str, str | bytes]) -> None: ...

# Token by token.

@final
class TokenSet:
    """A set of tokens, used like a list of bools. A new set is empty."""

    def __init__(self) -> None: ...
    def __len__(self) -> int:
        """Return the size of the vocabulary. `bool()` says whether the set holds any token."""

    def __bool__(self) -> bool: ...
    def __iter__(self) -> Iterator[bool]: ...
    def __getitem__(self, token: int) -> bool: ...
    def __setitem__(self, token: int, allowed: bool) -> None: ...
    def set_all(self, allowed: bool) -> None: ...
    def num_set(self) -> int:
        """Return the number of tokens in the set."""

def all_tokens() -> TokenSet: ...

class Constraint:
    """A constraint on generated text; the base class allows anything. Can be subclassed."""

    def __init__(self) -> None: ...
    def eos_allowed(self) -> bool:
        """May the text end here?"""

    def eos_forced(self) -> bool:
        """May the text end here, and can nothing follow?"""

    def token_allowed(self, token: int) -> bool: ...
    def append_token(self, token: int) -> None:
        """Accept a token. Raise ValueError if the token is not allowed."""

    def allow_tokens(self, tokens: TokenSet) -> None:
        """Add the tokens that may come next to the set."""

# Each raises ValueError for an invalid argument.
def RegexConstraint(pattern: str) -> Constraint: ...
def CfgConstraint(grammar: str) -> Constraint: ...
def SubStrConstraint(template: str, stop_at: str = '"') -> Constraint: ...
def ChooseConstraint(options: Sequence[str]) -> Constraint: ...
def ChoicesConstraint(choices: Sequence[str]) -> Constraint: ...
def JsonSchemaConstraint(schema: str | bool | Mapping[str, Any]) -> Constraint: ...

class DynamicLexer:
    """Text whose identifiers are among the words added so far; anything between identifiers is allowed.

    `extra`: ASCII characters that belong to identifiers, beside letters, digits and _. The text ends behind a word.
    """

    def __init__(self, extra: str = "") -> None: ...
    def add(self, word: str) -> DynamicLexer: ...
    def constraint(self) -> Constraint: ...

class Splice:
    """Remove `backtrack` tokens, then append. `when_sampled` must be empty."""

    backtrack: int
    ff_tokens: Sequence[int]
    def __init__(self, when_sampled: Sequence[int] = (), backtrack: int = 0, ff_tokens: Sequence[int] = ()) -> None: ...

class Branch:
    """The first step of a copy: either one splice, or a token of a set."""

    splices: Sequence[Splice]
    sample_mask: TokenSet | None
    def __init__(self, splices: Sequence[Splice] = (), sample_mask: TokenSet | None = None) -> None: ...

class MidProcessResult:
    """The decision for a step."""

    @staticmethod
    def of(branch: Branch | MidProcessResult) -> MidProcessResult: ...
    @staticmethod
    def bias(mask: TokenSet) -> MidProcessResult:
        """Sample one of these tokens."""

    @staticmethod
    def splice(backtrack: int, tokens: Sequence[int]) -> MidProcessResult:
        """Remove `backtrack` tokens, then append `tokens`."""

    @staticmethod
    def stop() -> MidProcessResult:
        """End the sequence."""

    @staticmethod
    def noop() -> MidProcessResult:
        """Do nothing in this step."""

    @staticmethod
    def skip() -> MidProcessResult:
        """Skip this step; the code after the step may use it."""

class NextToken(Awaitable[list[int] | None]):
    """A step decided by the script: a subclass defines `mid_process`. Awaiting takes the step, and may be repeated.
    The result is the appended tokens; None if the step was skipped."""

    curr_tokens: list[int] | None
    fork_group: Sequence[int]
    """The sequences forked from a common parent in this step, including this sequence."""

    def mid_process(self) -> MidProcessResult | Branch: ...
    def post_process(self, backtrack: int, tokens: list[int]) -> None:
        """Called after the step: `backtrack` tokens were removed, then `tokens` appended."""

    def __await__(self) -> Generator[Any, Any, list[int] | None]: ...

class ConstrainedToken(NextToken):
    """One token of a constraint, which is made in the first step."""

    def __init__(self, make_constraint: Callable[[], Constraint]) -> None: ...

class StopToken(NextToken):
    """Ends the sequence."""
