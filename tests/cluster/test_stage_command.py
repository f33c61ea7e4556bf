"""`aici stage`: what is refused before a driver comes."""

import os
from pathlib import Path

from tests.engine.support import write_tiny_model
from tests.support.cli import aici


def test_a_model_with_an_incomplete_file_is_refused_at_the_start(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model")
    file = model / "model.safetensors"
    os.truncate(file, file.stat().st_size - 1)
    done = aici("stage", "--model", str(model), "--token-file", str(tmp_path / "token"))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{file} cannot be read as safetensors" in done.stderr
    assert "hint: the download may be incomplete" in done.stderr
