"""Find the tokenizer.json for a name given to `--tokenizer`.

A name is tried in this order: a folder, a `tokenizer.json` or a GGUF file; a model in the cache folder of aici; a
repository `user/model[@rev]`, or a built-in name of a repository, in the cache of Hugging Face and then, if
huggingface_hub is installed, on the hub.
"""

import hashlib
import json
import logging
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from aici_base.cache_files import default_cache_dir, write_atomically
from aici_base.errors import NotFoundError, UsageError
from aici_base.ids import TokenId
from aici_base.tokenizer import gguf, gguf_tokenizer
from aici_base.tokenizer.tokens import HINT, tokenizer_file, vocab_size

FILE_NAME = "tokenizer.json"
MAX_EXTRA_TOKENS = 200
_REACH_S = 10.0

_log = logging.getLogger(__name__)

BUILT_IN = {
    "gpt4": "Xenova/gpt-4",
    "llama16": "codellama/CodeLlama-13b-Instruct-hf",
    "llama70": "codellama/CodeLlama-70b-Instruct-hf",
    "llama": "codellama/CodeLlama-34b-Instruct-hf",
    "orca": "microsoft/Orca-2-13b@refs/pr/23",
    "falcon": "tiiuae/falcon-7b",
    "mistral": "mistralai/Mistral-7B-Instruct-v0.2",
    "mpt": "mosaicml/mpt-7b",
    "phi": "microsoft/phi-1_5",
    "gpt2": "gpt2",
}
"""Names built into upstream AICI, and their repositories."""


@dataclass(frozen=True, slots=True)
class TokenizerSource:
    """A tokenizer.json on this machine. `eos_token`: the end-of-sequence token, if the source knows more than the
    file."""

    tokenizer_json: Path
    eos_token: TokenId | None = None


def find(name: str, cache_dir: Path, *, logits_size: int | None = None) -> TokenizerSource:
    """Return the tokenizer for a name. `logits_size`: pad the vocabulary with special tokens to this size. Derived
    files are kept in `cache_dir`.

        >>> find(str(tokenizer_folder), folder).tokenizer_json.name
        'tokenizer.json'

    Raise NotFoundError with all places searched, or UsageError if the file is not a tokenizer.
    """
    source = _on_this_machine(name, cache_dir) or TokenizerSource(_named(name))
    if logits_size is None:
        return source
    content = _padded(source.tokenizer_json.read_bytes(), logits_size)
    return TokenizerSource(_keep(content, cache_dir), source.eos_token)


def _on_this_machine(name: str, cache_dir: Path) -> TokenizerSource | None:
    path = Path(name)
    if path.is_file() and _is_gguf(path):
        content, eos_token = gguf_tokenizer.read(path)
        return TokenizerSource(_keep(content, cache_dir), eos_token)
    if path.exists() or name.startswith(("/", ".", "~")):
        return TokenizerSource(tokenizer_file(name))
    return None


def _is_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(gguf.MAGIC)) == gguf.MAGIC


def _named(name: str) -> Path:
    own = default_cache_dir() / "models" / name / FILE_NAME
    if own.is_file():
        return own
    repo, _, revision = BUILT_IN.get(name, name).partition("@")
    cached = _hub_cache() / f"models--{repo.replace('/', '--')}"
    found = _snapshot(cached, revision or "main")
    if found is not None:
        return found
    try:
        return _fetch(repo, revision or None)
    except _FetchError as error:
        raise NotFoundError(
            f"no tokenizer {name}; searched {own}, the repository {repo} in {cached}, and the hub: {error}",
            hint=HINT,
        ) from error


def _hub_cache() -> Path:
    """Return the folder in which huggingface_hub keeps its files."""
    if own := os.environ.get("HF_HUB_CACHE"):
        return Path(own).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "huggingface" / "hub"


def _snapshot(cached: Path, revision: str) -> Path | None:
    """Return the file of a revision. `refs/REVISION` holds the commit of a branch; a revision may be a commit too."""
    ref = cached / "refs" / revision
    commit = ref.read_text().strip() if ref.is_file() else revision
    file = cached / "snapshots" / commit / FILE_NAME
    return file if file.is_file() else None


class _FetchError(Exception):
    pass


def _fetch(repo: str, revision: str | None) -> Path:
    try:
        from urllib.request import getproxies  # imported late: slow

        from huggingface_hub import constants, hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    except ImportError as error:
        raise _FetchError("huggingface_hub is not installed") from error
    if not constants.HF_HUB_OFFLINE:
        if not getproxies():
            _check_reachable(constants.ENDPOINT)
        _log.warning("fetching the tokenizer of %s", repo)
    try:
        return Path(hf_hub_download(repo, FILE_NAME, revision=revision))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise _FetchError((str(error).strip() or repr(error)).splitlines()[0]) from error


def _check_reachable(url: str) -> None:
    """Raise _FetchError soon if the hub is unreachable: the hub's client would retry for half a minute."""
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 443), timeout=_REACH_S).close()
    except OSError as error:
        raise _FetchError(f"{url} cannot be reached: {error.strerror or error}") from error


def _padded(tokenizer_json: bytes, size: int) -> bytes:
    had = vocab_size(tokenizer_json)
    if not had <= size <= had + MAX_EXTRA_TOKENS:
        raise UsageError(
            f"--logits-size {size} does not fit a vocabulary of {had} tokens",
            hint=f"give a size from {had} to {had + MAX_EXTRA_TOKENS}",
        )
    tokenizer = json.loads(tokenizer_json)
    tokenizer["added_tokens"] = (tokenizer.get("added_tokens") or []) + [
        {
            "id": token, "content": f"<AddedToken_{token - had}>", "special": True,
            "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
        }
        for token in range(had, size)
    ]  # fmt: skip
    return json.dumps(tokenizer, ensure_ascii=False).encode()


def _keep(tokenizer_json: bytes, cache_dir: Path) -> Path:
    """Store a derived tokenizer.json under its hash. Raise UnavailableError if the cache folder cannot be written."""
    path = cache_dir / "tokenizers" / f"{hashlib.sha256(tokenizer_json).hexdigest()}.json"
    if not path.is_file():
        write_atomically(path, tokenizer_json)
    return path
