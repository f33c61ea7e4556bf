"""`ControllerProcessor` in `generate` of transformers: the texts of an engine of aici, and what is refused by name."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import aici
from aici.transformers import ControllerProcessor
from tests.engine.support import EOS, EOT, write_tiny_model
from tests.support.guests import build_test_guest

pytestmark = pytest.mark.e2e

PROMPTS = ["Hello", "A longer prompt: "]
CONSTRAINTS: dict[str, aici.Constraint[Any]] = {
    "regex": aici.regex(r"[0-9]{3}[a-z]{2}"),
    "choice": aici.choice("the quick fox", "the quick dog"),  # most of its tokens are forced
    "schema": aici.json_schema({"type": "object", "properties": {"a": {"enum": ["x", "yy"]}}, "required": ["a"]}),
    "script": aici.script("await $`Two: `; await gen({ regex: /[a-z]{4}/ }); await $`.`;", "javascript"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[aici.LLM]:
    with aici.LLM(folder) as llm:
        yield llm


def generate(folder: Path, processor: ControllerProcessor, prompts: list[str], **options: Any) -> list[bytes]:
    """The bytes that follow each prompt, up to the first EOS."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    rows = [list(prompt.encode()) for prompt in prompts]
    longest = max(map(len, rows))
    ids = torch.tensor([[int(EOS)] * (longest - len(row)) + row for row in rows])
    attention = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    given = {"max_new_tokens": 40, "do_sample": False} | options
    found = model.generate(ids, attention_mask=attention, logits_processor=[processor], **given)
    outputs = [row[longest:] for row in found.tolist()]
    return [bytes(token for token in row[: row.index(EOS) if EOS in row else None] if token < 256) for row in outputs]


def processor_of(folder: Path, constraint: aici.Constraint[Any], **options: Any) -> ControllerProcessor:
    return ControllerProcessor(constraint, folder, eos_tokens=[EOT], pad_token=EOS, **options)


@pytest.mark.parametrize("name", ["regex", "choice", "schema", "script"])
def test_the_texts_are_those_of_an_engine(folder: Path, llm: aici.LLM, name: str) -> None:
    constraint = CONSTRAINTS[name]
    wanted = [llm.generate(prompt, constraint, max_tokens=40).text.encode() for prompt in PROMPTS]
    with processor_of(folder, constraint) as processor:
        assert generate(folder, processor, PROMPTS) == wanted
        processor.reset()
        assert generate(folder, processor, PROMPTS[:1]) == wanted[:1]


def test_rows_end_by_themselves_and_others_go_on(folder: Path) -> None:
    with processor_of(folder, aici.regex("a{1,9}")) as processor:
        texts = generate(folder, processor, ["x", "y", "z"], do_sample=True)
    assert all(set(text) == {ord("a")} and len(text) <= 9 for text in texts)


def test_a_tokenizer_in_memory_will_do(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder, eos_token="<|endoftext|>")
    with ControllerProcessor(aici.regex("[xy]{3}"), tokenizer, eos_tokens=[EOT]) as processor:
        [text] = generate(folder, processor, ["Hello"])
    assert len(text) == 3
    assert set(text) <= set(b"xy")


@pytest.mark.parametrize(
    ("constraint", "said"),
    [
        (aici.script("await fork(2); await gen({maxTokens: 2});", "javascript"), "forks into 2: generate cannot"),
        (aici.script("await $`a`; await waitVars('never');", "javascript"), "waits for another fork"),
        (aici.controller(build_test_guest("splice"), "forty-two"), "removes .* tokens: generate cannot"),
    ],
)
def test_what_generate_cannot_do_is_refused_by_name(folder: Path, constraint: aici.Constraint[Any], said: str) -> None:
    with processor_of(folder, constraint) as processor, pytest.raises(aici.ControllerError, match=said):
        generate(folder, processor, ["Hello"])


def test_a_controller_that_fails_ends_generate(folder: Path) -> None:
    script = aici.script("await $`a`; throw new Error('broken')", "javascript")
    with processor_of(folder, script) as processor, pytest.raises(aici.ControllerError, match="broken"):
        generate(folder, processor, ["Hello"])


def test_rows_of_another_generation_are_refused(folder: Path) -> None:
    with processor_of(folder, aici.regex("[a-z]{9}")) as processor:
        generate(folder, processor, ["Hello"], max_new_tokens=2)
        with pytest.raises(aici.UsageError, match="not those of the last step"):
            generate(folder, processor, ["Hello"])
    with processor_of(folder, aici.regex("[a-z]{9}")) as processor, pytest.raises(aici.UsageError, match="beam search"):
        generate(folder, processor, ["Hello"], num_beams=3)
