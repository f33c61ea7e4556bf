"""The clients of `/v1/responses` that are run unmodified: each has a program here and an environment of its own."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.client_venv import client_folder, client_python

HERE = Path(__file__).parent
MODEL_ALIASES = ("gpt-5.6-luna",)
"""The default model of openai-agents."""
SERVE_ARGS = ("--max-context", "1024", *(arg for name in MODEL_ALIASES for arg in ("--alias", name)))


@dataclass(frozen=True)
class Client:
    """`program`: its name in this folder. `packages`: pinned, of PyPI, or of npm for a program in JavaScript."""

    name: str
    program: str
    packages: tuple[str, ...]

    @property
    def is_made(self) -> bool:
        """Whether the environment is there."""
        return (client_folder(*self.packages) / "done").exists()

    def make(self) -> None:
        """Make the environment, from the package registries, if it is not there."""
        folder = client_folder(*self.packages)
        if not self.program.endswith(".mjs"):
            client_python(*self.packages)
        elif not self.is_made:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "package.json").write_text("{}")
            npm = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
            subprocess.run([*npm, *self.packages], check=True, cwd=folder)
            (folder / "done").touch()

    def run(self, url: str) -> dict[str, Any]:
        """Return what the program found out, by feature. Raises AssertionError if the program fails."""
        folder, program = client_folder(*self.packages), HERE / self.program
        if program.suffix == ".mjs":
            program = Path(shutil.copy(program, folder))  # Node finds packages beside a program only
        interpreter = "node" if program.suffix == ".mjs" else str(folder / "bin" / "python")
        env = os.environ | {"PROMPTFOO_DISABLE_TELEMETRY": "1", "PROMPTFOO_DISABLE_UPDATE": "1"}
        command = [interpreter, str(program), f"{url}/v1"]
        run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280, cwd=folder)
        assert run.returncode == 0, f"{self.name}: {run.stderr[-2000:]}"
        found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
        return found


CLIENTS = (
    Client("openai for Node", "openai_client.mjs", ("openai@6.49.0", "zod@4.6.7")),
    Client("openai-agents", "agents_client.py", ("openai-agents==0.24.0",)),
    Client("LangChain", "langchain_client.py", ("langchain-openai==1.7.3",)),
    Client("pydantic-ai", "pydantic_ai_client.py", ("pydantic-ai-slim[openai]==2.68.0",)),
    Client("instructor", "instructor_client.py", ("instructor==1.17.0",)),
    Client("LiteLLM", "litellm_client.py", ("litellm==1.106.2", "mcp==2.3.0")),
    Client("Vercel AI SDK", "ai_sdk_client.mjs", ("ai@6.0.326", "@ai-sdk/openai@3.0.141", "zod@4.6.7")),
    Client("promptfoo", "promptfoo_client.mjs", ("promptfoo@0.121.20",)),
)
