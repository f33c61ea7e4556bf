"""A client that is run unmodified against `aici serve`: its environment, its programs, and what they find out."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.clients.environment import NodeEnvironment, PythonEnvironment
from tests.support.model import default_model_dir

PROGRAMS = Path(__file__).parent / "programs"
TIMEOUT_S = 900
"""For one program. A busy machine takes long to import the larger clients."""
QUIET = {
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "HF_HUB_OFFLINE": "1",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "PYTHONWARNINGS": "ignore",
}
"""Environment variables with which the clients ask nothing of any other server."""


@dataclass(frozen=True, slots=True)
class Check:
    """What a program found out about a feature. `detail` tells two checks of one feature apart. `error` is empty if
    the check passed."""

    feature: str
    detail: str
    error: str


@dataclass(frozen=True, slots=True)
class Client:
    """`programs`: names in the folder `programs`. `theirs`: by feature or `feature: detail`, why a check fails that
    our server cannot mend. `needs`: an environment variable with the folder of a client that no registry has."""

    name: str
    programs: tuple[str, ...]
    environment: PythonEnvironment | NodeEnvironment
    theirs: Mapping[str, str] = field(default_factory=dict)
    needs: str | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the client can run."""
        return self.environment.is_made and (self.needs is None or self.needs in os.environ)

    def checks(self, url: str) -> Iterator[Check]:
        """Run the programs against the server at `url` and yield each check."""
        for program in self.programs:
            command = [*self.environment.command(PROGRAMS / program), url]
            env = os.environ | QUIET | {"PYTHONPATH": str(PROGRAMS), "AICI_TOKENIZER": str(default_model_dir())}
            folder = self.environment.folder
            env["HOME"] = str(folder / "home")  # what a client keeps for its user
            (folder / "home").mkdir(exist_ok=True)
            try:
                run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=folder)
            except subprocess.TimeoutExpired:
                yield Check("program", program, f"has not ended after {TIMEOUT_S} s")
                continue
            lines = [line for line in run.stdout.splitlines() if line.startswith('{"feature"')]
            yield from (Check(**json.loads(line)) for line in lines)
            if run.returncode or not lines:
                yield Check("program", program, f"exit code {run.returncode}: {run.stderr[-1500:]}")

    def excuse(self, check: Check) -> str | None:
        """Return why a failed check is not our server's fault, or None."""
        return self.theirs.get(f"{check.feature}: {check.detail}", self.theirs.get(check.feature))
