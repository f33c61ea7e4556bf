"""`aici rt replay`: play a recording against a runtime, and name the first answer that is another one.

The runtime starts with an empty store, and gets the commands one after the other. Left out of the comparison are
times, sizes of compiled code, and tags that the recording has not set. A recording in which nothing ran out of time
is played with generous limits: the machine may be slower than that of the recording.
"""

import argparse
import contextlib
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from aici_base.cache_files import default_cache_dir
from aici_base.errors import NotFoundError, RuntimeDiedError, UsageError
from aici_base.tokenizer import tokenizer_sources
from aici_runtime.flags import parse
from aici_runtime.recordings import recording
from aici_runtime.recordings.player import Player, install
from aici_runtime.recordings.recording import Exchange, Session
from aici_runtime.recordings.trace import MaskReader
from aici_runtime.tokenizer import vocabulary

_LEFT_OUT = frozenset({"micros", "$rid", "time", "compiled_size", "updated_at", "eos_token_id", "code", "hint"}) | {
    "first_mask_byte_offset"
}
"""Measured, not in every version of the protocol, or a matter of --bin-size: the masks themselves are compared."""

_TOO_LARGE = "msg too large;"
"""By so many bytes, measured times among them."""

_GENEROUS = {
    "--wasm-max-pre-step-time": "20000",
    "--wasm-max-step-time": "20000",
    "--wasm-max-init-time": "60000",
}
_CAPABILITIES = ("--cap-fork", "--cap-backtrack", "--cap-ff-tokens")
_SIZES = ("--json-size", "--bin-size")
_MAX_SHOWN_CHARS = 300


@dataclass(frozen=True, slots=True)
class Difference:
    """`path`: where in the response, or in the masks."""

    line: int
    command: Any
    path: str
    recorded: Any
    now: Any


def main(argv: Sequence[str]) -> int:
    """Returns 0: the same, 1: different. Raises UsageError for what cannot be played."""
    asked = _parser().parse_args(argv)
    num_played = 0
    for session in recording.read(asked.file):
        found = _play(session, asked.tokenizer, asked.aicirt)
        num_played += len(session.exchanges)
        if found is not None:
            _say(found, as_json=asked.json)
            if session.has_timeouts:
                sys.stderr.write("note: a guest ran out of time in this recording; what follows from that may differ\n")
            return 1
    sys.stdout.write(
        f'{{"same":true,"commands":{num_played}}}\n' if asked.json else f"the same: {num_played} commands\n"
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aici rt replay",
        description="Play a recording of --trace; exit 0: same answers, 1: another one, 2: bad file",
    )
    parser.add_argument("file", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--tokenizer", metavar="NAME", help="(default: as recorded)")
    parser.add_argument("--aicirt", metavar="PATH", help="another runtime's program (default: this one)")
    parser.add_argument("--json", action="store_true")
    return parser


def _play(session: Session, tokenizer: str | None, aicirt: str | None) -> Difference | None:
    flags = _flags(session)
    settings = parse(flags)
    with tempfile.TemporaryDirectory(prefix="aici-replay-") as temporary:
        folder = Path(temporary)
        name = _tokenizer(session, tokenizer, folder, settings.logits_size)
        loaded = vocabulary.load(name, folder, logits_size=settings.logits_size)
        own = [sys.executable, "-P", "-m", "aici_runtime.main", f"--cache-dir={folder}"]
        command = [
            *([_program(aicirt)] if aicirt else own),
            f"--tokenizer={Path(name).absolute() if Path(name).exists() else name}",
        ]
        command += [flag for flag in flags if not flag.startswith(_SIZES)]
        for wasm in session.modules:
            install(command, folder, wasm)
        sizes = {"json_size_bytes": settings.json_size_bytes, "bin_size_bytes": settings.bin_size_bytes}
        with Player(command, folder, **sizes) as player:
            reader = MaskReader(player.masks, settings.bias_dtype, loaded.vocab_size)
            tags: set[str] = set()
            for exchange in session.exchanges:
                tags |= exchange.tags
                found = _compare(exchange, tags, player, reader)
                if found is not None:
                    return found
    return None


def _tokenizer(session: Session, asked: str | None, folder: Path, logits_size: int | None) -> str:
    """The one that was asked for; else the recorded one, by its name or wherever aici keeps it on this machine."""
    if session.tokenizer_sha256 is None:
        if asked is None:
            raise UsageError("the recording does not say which tokenizer it was", hint="name it with --tokenizer")
        return asked
    kept = sorted((default_cache_dir() / "models").glob("*/tokenizer.json"))
    for name in [asked] if asked else [session.tokenizer, *map(str, kept)]:
        with contextlib.suppress(NotFoundError):
            source = tokenizer_sources.find(name, folder, logits_size=logits_size)
            if hashlib.sha256(source.tokenizer_json.read_bytes()).hexdigest() == session.tokenizer_sha256:
                return name
    raise UsageError(
        f"{asked or session.tokenizer} is not the tokenizer of the recording, or is not here",
        hint=f"name the one whose tokenizer.json has the sha256 {session.tokenizer_sha256} with --tokenizer",
    )


def _program(name: str) -> str:
    """Its full path: it runs elsewhere."""
    found = shutil.which(name)
    if found is None:
        raise UsageError(f"no program {name}", hint="--aicirt takes the path of a runtime")
    return str(Path(found).absolute())


def _flags(session: Session) -> list[str]:
    # The original's client writes down no flags; those of the later protocol's engines can do everything.
    told = ([] if session.is_earlier else _CAPABILITIES) if session.flags is None else session.flags
    flags = dict(flag.partition("=")[::2] for flag in told)
    if not session.has_timeouts:
        flags |= _GENEROUS
    return [f"{name}={value}" if value else name for name, value in flags.items()]


def _compare(exchange: Exchange, tags: set[str], player: Player, reader: MaskReader) -> Difference | None:
    try:
        now = player.ask(exchange.side, exchange.message, is_answered=exchange.response is not None)
    except RuntimeDiedError as error:
        return Difference(exchange.line, exchange.command, "", exchange.response, error.message)
    hashes = reader.hashes(exchange.command, now) if exchange.masks and now["type"] == "ok" else {}
    recorded = {"response": _only(exchange.response, tags), "masks": exchange.masks}
    for path, before, after in _differences(recorded, {"response": _only(now, tags), "masks": hashes}, ""):
        return Difference(exchange.line, exchange.command, path, before, after)
    return None


def _only(response: Any, tags: set[str]) -> Any:
    """Without the tags that stood in the store before."""
    data = response.get("data") if isinstance(response, dict) else None
    if not isinstance(data, dict) or not isinstance(data.get("tags"), list):
        return response
    return response | {"data": {"tags": [tag for tag in data["tags"] if tag["tag"] in tags]}}


def _differences(before: Any, after: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            if key not in _LEFT_OUT:
                yield from _differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for k, pair in enumerate(zip(before, after, strict=True)):
            yield from _differences(*pair, f"{path}[{k}]")
    elif before != after and not all(str(value).startswith(_TOO_LARGE) for value in (before, after)):
        yield path, before, after


def _say(found: Difference, *, as_json: bool) -> None:
    values = {"line": found.line, "path": found.path, "recorded": found.recorded, "now": found.now}
    if as_json:
        sys.stdout.write(json.dumps({"same": False, **values}) + "\n")
        return
    lines = [f"line {found.line}: {_short(found.command)}", f"  {found.path or 'the answer'}"]
    sys.stdout.write(
        "\n".join([*lines, f"  recorded: {_short(found.recorded)}", f"  now:      {_short(found.now)}", ""])
    )


def _short(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}… ({len(text)} characters)"
