"""A program that runs the command `llm`, as its user does."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from features import feature

FOLDER = Path(tempfile.mkdtemp(prefix="aici-llm-"))
MODELS = """\
- model_id: ours
  model_name: default
  api_base: "{url}/v1"
  supports_schema: true
  supports_tools: true
- model_id: text
  model_name: default
  api_base: "{url}/v1"
  completion: true
"""
(FOLDER / "extra-openai-models.yaml").write_text(MODELS.format(url=sys.argv[1]))
FUNCTION = 'def weather(city: str) -> str:\n    "Return the weather of a city."\n    return "clear"\n'


def llm(*args: str) -> str:
    command = [str(Path(sys.executable).with_name("llm")), *args]
    environment = os.environ | {"LLM_USER_PATH": str(FOLDER), "OPENAI_API_KEY": "none"}
    run = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


greedy = ["-m", "ours", "-o", "temperature", "0", "-o", "max_tokens", "60"]


@feature("chat")
def _() -> bool:
    return bool(llm("Say hello.", *greedy, "--no-stream").strip())


@feature("chat", "a completion model")
def _() -> bool:
    return bool(llm("Once upon a time", "-m", "text", "-o", "max_tokens", "8").strip())


@feature("stream")
def _() -> bool:
    return llm("Say hello.", *greedy) == llm("Say hello.", *greedy, "--no-stream")


@feature("multi-turn")
def _() -> bool:
    llm("Say hello.", *greedy)
    return bool(llm("Again.", "-c", *greedy).strip())


@feature("structured output")
def _() -> bool:
    schema = {"type": "object", "properties": {"sky": {"enum": ["clear", "cloudy"]}}, "required": ["sky"]}
    return json.loads(llm("The sky is blue.", *greedy, "--schema", json.dumps(schema)))["sky"] in ("clear", "cloudy")


@feature("structured output", "its short form")
def _() -> bool:
    return set(json.loads(llm("Ada is 36.", *greedy, "--schema", "name, age int"))) == {"name", "age"}


@feature("tools", "whether the tool is called, the model decides")
def _() -> bool:
    llm("How is the weather in Rome?", *greedy, "--functions", FUNCTION, "--cl", "2")
    return True


@feature("usage")
def _() -> bool:
    [last] = json.loads(llm("logs", "-n", "1", "--json"))
    return last["input_tokens"] > 0 < last["output_tokens"]


@feature("errors")
def _() -> bool:
    try:
        llm("Say hello.", "-m", "ours", "-o", "logit_bias", '{"9999999": 1}')
    except AssertionError as error:
        return "logit_bias" in str(error)
    return False
