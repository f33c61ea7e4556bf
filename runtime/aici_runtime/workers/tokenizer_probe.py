"""Load and try one tokenizer: `python -m aici_runtime.workers.tokenizer_probe FILE PROCESSOR_SECONDS PARENT`.

The process loads the library, enters the sandbox of guests (no files, no network, no other programs, bounded memory),
and only then gives the file to the library. A reason to refuse the file goes to standard output, with exit status
`REFUSED`.
"""

import json
import re
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aici_runtime import process
from aici_runtime.tokenizer.tokenizer_check import MEMORY_MAX_BYTES, PASSED, REFUSED
from aici_runtime.workers import sandbox

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_MAX_GROWTH: Final = 64
"""Times that a normalizer may lengthen a text. Known ones write 3 bytes for a space."""
_MAX_TOKENS_PER_BYTE: Final = 4
_MAX_ADDED_TOKENS: Final = 64
"""Special tokens around a text."""
_SAMPLE_CHARS: Final = 4096


class RefusedError(Exception):
    """The file is at fault."""


def check(content: bytes) -> None:
    """Raise RefusedError for a tokenizer that cannot be loaded, fails over a text, or multiplies texts."""
    try:
        _check(content)
    except RefusedError:
        raise
    except BaseException as error:  # the library raises plain Exception, and PanicException, which is no Exception
        raise RefusedError(str(error) or repr(error)) from error


def _check(content: bytes) -> None:
    from tokenizers import Tokenizer

    if (growth := _growth(json.loads(content).get("normalizer"))) > _MAX_GROWTH:
        raise RefusedError(f"its normalizer can make a text {growth:.0f} times longer")
    tokenizer = Tokenizer.from_buffer(content)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if (added := _num_tokens(tokenizer, "", add_special_tokens=True)) > _MAX_ADDED_TOKENS:
        raise RefusedError(f"it adds {added} tokens to each text")
    for sample in _samples():
        num_tokens, num_bytes = _num_tokens(tokenizer, sample), len(sample.encode())
        if num_tokens > _MAX_TOKENS_PER_BYTE * num_bytes:
            raise RefusedError(f"it makes {num_tokens} tokens of a text of {num_bytes} bytes")


def _num_tokens(tokenizer: "Tokenizer", text: str, *, add_special_tokens: bool = False) -> int:
    return len(tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0])


def _samples() -> Iterator[str]:
    """Yield texts of all kinds: words, runs of one character, and characters of one to four bytes."""
    yield "The quick brown fox (aged 12) said: \"it's 3.14, isn't it?\"\n\tdef f(x): return x != 0  # ok\n" * 40
    for part in (
        "a",
        "A",
        " ",
        "\n",
        "\t",
        "1",
        ".",
        "-",
        "a ",
        "()",
        "aA1",
        "\u00e9",
        "\u6f22\u5b57",
        "\U0001f600",
        "\0",
    ):
        yield part * (_SAMPLE_CHARS // len(part))
        yield part * 64 + "!"
    yield "".join(map(chr, range(0x20, 0x2020)))


def _growth(part: Any) -> float:
    """Return how many times longer a normalizer may make a text, at most."""
    if not isinstance(part, dict):
        return 1.0
    match part.get("type"):
        case "Sequence":
            growth = 1.0
            for each in part.get("normalizers") or ():
                growth *= _growth(each)
            return growth
        case "Replace":
            return _growth_of_replace(part.get("pattern"), str(part.get("content")))
        case "Prepend":
            return max(1.0, len(str(part.get("prepend"))))  # of a text of one character
    return 1.0


def _growth_of_replace(pattern: Any, content: str) -> float:
    text = pattern.get("String") if isinstance(pattern, dict) else None
    if isinstance(text, str) and text:
        return max(1.0, len(content) / len(text))
    regex = pattern.get("Regex") if isinstance(pattern, dict) else None
    try:
        matches_nothing = not isinstance(regex, str) or re.search(regex, "") is not None
    except re.error:  # the library has another syntax
        matches_nothing = True
    return max(1.0, len(content) + matches_nothing)


def main(path: Path, processor_s: float, parent: int) -> int:
    process.die_with_parent(parent)
    process.set_name("aici-tokenizer")
    import tokenizers  # noqa: F401 -- loads the library, which the sandbox would not let in

    content = path.read_bytes()
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process
    signal.setitimer(signal.ITIMER_PROF, processor_s)
    sandbox.enter(memory_bytes=MEMORY_MAX_BYTES).seal()
    said, status = PASSED, 0
    try:
        check(content)
    except RefusedError as error:
        said, status = str(error), REFUSED
    sys.stdout.write(f"{said[:10_000]}\n")
    return status


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))
