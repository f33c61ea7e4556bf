"""Programs written for OpenAI's server, run against ours."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aici_engine.server.protocols import openai
from tests.support.client_venv import client_python
from tests.support.server import Server

pytestmark = pytest.mark.e2e

MODELS = """\
- model_id: ours
  model_name: default
  api_base: "{url}/v1"
  supports_schema: true
  supports_tools: true
"""


def llm(folder: Path, *args: str) -> str:
    """Return the output of the `llm` command."""
    command = [str(Path(sys.executable).with_name("llm")), *args]
    environment = os.environ | {"LLM_USER_PATH": str(folder), "OPENAI_API_KEY": "none"}
    run = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_llm(server: Server, tmp_path: Path) -> None:
    (tmp_path / "extra-openai-models.yaml").write_text(MODELS.format(url=server.url))
    greedy = ["-m", "ours", "-o", "temperature", "0"]
    ask = ["Count from one to ten.", *greedy, "-o", "max_tokens", "16"]
    streamed = llm(tmp_path, *ask)
    assert streamed.strip()
    assert llm(tmp_path, *ask, "--no-stream") == streamed
    schema = {"type": "object", "properties": {"size": {"enum": ["small", "large"]}}, "required": ["size"]}
    closed = json.dumps(schema | {"additionalProperties": False})
    assert json.loads(llm(tmp_path, "Paris?", *greedy, "--schema", closed))["size"] in ("small", "large")
    # The log of `llm` has our ids and our usage.
    [last] = json.loads(llm(tmp_path, "logs", "-n", "1", "--json"))
    assert last["input_tokens"] > 0 < last["output_tokens"]


def test_the_readmes_example(server: Server) -> None:
    readme = (Path(openai.__file__).parent / "README.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    code = code.replace("http://127.0.0.1:4242", server.url)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert run.stdout.strip() in ("yes", "no"), run.stderr


@pytest.mark.timeout(300)  # the first run on a machine fetches instructor
def test_instructor(server: Server) -> None:
    python = client_python("instructor==1.17.0")
    script = Path(__file__).with_name("instructor_people.py")
    run = subprocess.run([python, script, f"{server.url}/v1"], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found.keys() == {"TOOLS", "JSON_SCHEMA"}
    for person in found.values():
        assert person["name"] in ("Ada", "Alan")
        assert person["age"] in (36, 41)
