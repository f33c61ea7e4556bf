"""`aici serve --lora` and `aici run --adapter`: the default model, and the same model with an adapter."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.cli import aici
from tests.support.lora import adapt, random_pairs, write_lora
from tests.support.model import default_model_dir
from tests.support.server import serving

pytestmark = pytest.mark.e2e
PROMPT = "The capital of France is"
LAYERS = {f"model.layers.{i}.mlp.down_proj": 2 for i in (3, 11, 19)}
NUM_TOKENS = 6


@pytest.fixture(scope="module")
def module() -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(default_model_dir(), dtype=torch.float32)


@pytest.fixture(scope="module")
def folder(module: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lora(tmp_path_factory.mktemp("lora"), random_pairs(module, LAYERS))


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[openai.OpenAI]:
    with (
        serving("--dtype", "float32", "--lora", f"tuned={folder}") as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def oracle(module: Any) -> str:
    import torch
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(default_model_dir())
    ids = tokenizer(PROMPT, return_tensors="pt").input_ids
    with torch.inference_mode():
        output = module.generate(ids, do_sample=False, max_new_tokens=NUM_TOKENS)[0, ids.shape[1] :]
    text: str = tokenizer.decode(output, skip_special_tokens=True)
    return text


def test_the_name_of_an_adapter_chooses_it(client: openai.OpenAI, module: Any, folder: Path) -> None:
    listed = {each.id: (each.model_extra or {}).get("parent") for each in client.models.list()}
    plain_name = default_model_dir().name
    assert listed == {plain_name: None, "tuned": plain_name}

    def text(name: str) -> str:
        answer = client.completions.create(model=name, prompt=PROMPT, max_tokens=NUM_TOKENS, temperature=0)
        assert answer.model == name
        return answer.choices[0].text

    plain = oracle(module)
    adapt(module, random_pairs(module, LAYERS), dict.fromkeys(LAYERS, 1.0))
    tuned = oracle(module)
    assert plain != tuned
    run = aici("run", "--dtype", "float32", "--adapter", str(folder), "--max-tokens", str(NUM_TOKENS), PROMPT)
    assert run.stdout.rstrip("\n") == tuned.rstrip("\n")
    # In turn, so that cached prompts of one model would show in the other.
    assert [text(name) for name in (plain_name, "tuned", plain_name, "tuned")] == [plain, tuned, plain, tuned]
