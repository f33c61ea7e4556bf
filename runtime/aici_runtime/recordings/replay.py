"""`aici rt replay`: replay a recording against a runtime and report the first answer that differs.

The runtime starts with an empty store and gets the commands one after the other. The comparison ignores times, sizes of
compiled code, and tags not set by the recording. If no guest timed out in the recording, the replay uses generous time
limits: the machine may be slower than the recorded machine.
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
from aici_runtime.recordings.recording import RecordedExchange, RecordedSession
from aici_runtime.recordings.trace import MaskReader
from aici_runtime.tokenizer import vocabulary

_LEFT_OUT = frozenset({"micros", "$rid", "time", "compiled_size", "updated_at", "eos_token_id", "code", "hint"}) | {
    "first_mask_byte_offset",
    "cpu_us",
}
"""Fields ignored by the comparison: measured values, fields missing in some protocol versions, and an offset that
depends on --bin-size. The masks themselves are compared."""

_TOO_LARGE = "msg too large;"
"""The message continues with the excess in bytes, which depends on measured times."""

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
    """The first difference. `path`: the position in the response or in the masks."""

    line: int
    command: Any
    path: str
    recorded: Any
    now: Any


def main(argv: Sequence[str]) -> int:
    """Run the command. Return 0 if all answers are the same, 1 if an answer differs. Raise UsageError for a bad
    recording."""
    asked = _parser().parse_args(argv)
    num_played = 0
    for session in recording.read(asked.file):
        found = _play(session, asked.tokenizer, asked.aicirt)
        num_played += len(session.exchanges)
        if found is not None:
            _say(found, as_json=asked.json)
            if session.has_timeouts:
                sys.stderr.write(
                    "note: a guest timed out in this recording; later answers may differ for this reason\n"
                )
            return 1
    sys.stdout.write(
        f'{{"same":true,"commands":{num_played}}}\n' if asked.json else f"the same: {num_played} commands\n"
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aici rt replay",
        description="Replay a recording of --trace. Exit status 0: same answers; 1: an answer differs; 2: bad file.",
    )
    parser.add_argument("file", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--tokenizer", metavar="NAME", help="tokenizer of the replay (default: as recorded)")
    parser.add_argument("--aicirt", metavar="PATH", help="program of another runtime (default: this runtime)")
    parser.add_argument("--json", action="store_true")
    return parser


def _play(session: RecordedSession, tokenizer: str | None, aicirt: str | None) -> Difference | None:
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


def _tokenizer(session: RecordedSession, asked: str | None, folder: Path, logits_size: int | None) -> str:
    """Return the requested tokenizer, else the recorded tokenizer: by name, or from the models that aici keeps on this
    machine."""
    if session.tokenizer_sha256 is None:
        if asked is None:
            raise UsageError("the recording does not name its tokenizer", hint="name the tokenizer with --tokenizer")
        return asked
    kept = sorted((default_cache_dir() / "models").glob("*/tokenizer.json"))
    for name in [asked] if asked else [session.tokenizer, *map(str, kept)]:
        with contextlib.suppress(NotFoundError):
            source = tokenizer_sources.find(name, folder, logits_size=logits_size)
            if hashlib.sha256(source.tokenizer_json.read_bytes()).hexdigest() == session.tokenizer_sha256:
                return name
    raise UsageError(
        f"{asked or session.tokenizer} is missing or is not the tokenizer of the recording",
        hint=f"give --tokenizer the tokenizer.json with the sha256 {session.tokenizer_sha256}",
    )


def _program(name: str) -> str:
    """Return the full path of a program, which will run in another folder."""
    found = shutil.which(name)
    if found is None:
        raise UsageError(f"no program {name}", hint="--aicirt takes the path of a runtime program")
    return str(Path(found).absolute())


def _flags(session: RecordedSession) -> list[str]:
    # Upstream's client records no flags; engines of protocol v2 have all capabilities.
    told = ([] if session.is_v1 else _CAPABILITIES) if session.flags is None else session.flags
    flags = dict(flag.partition("=")[::2] for flag in told)
    if not session.has_timeouts:
        flags |= _GENEROUS
    return [f"{name}={value}" if value else name for name, value in flags.items()]


def _compare(exchange: RecordedExchange, tags: set[str], player: Player, reader: MaskReader) -> Difference | None:
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
    """Return the response without tags that stood in the store before."""
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
