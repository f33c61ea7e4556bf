"""CTranslate2. Its converter needs torch and transformers beside the package."""

import json
import os
from typing import Any

NAME = "ctranslate2"
PACKAGES = ("ctranslate2",)
FORMS = ("int8",)


def prepare(job: dict[str, Any]) -> None:
    from ctranslate2.converters import TransformersConverter

    part = f"{job['made']}.part"
    TransformersConverter(job["model"]).convert(part, quantization=job["form"], force=True)
    os.rename(part, job["made"])


class Engine:
    def __init__(self, job: dict[str, Any]) -> None:
        import ctranslate2

        self._generator = ctranslate2.Generator(
            job["made"], device=job["device"], compute_type=job["form"], intra_threads=job["threads"]
        )
        with open(f"{job['made']}/vocabulary.json", encoding="utf-8") as file:
            self._names: list[str] = json.load(file)

    def run(self, prompts: list[list[int]], num_new: int, out: Any) -> None:
        names = [[self._names[token] for token in prompt] for prompt in prompts]

        def seen(step: Any) -> bool:
            out.add(step.batch_id, [step.token_id])
            return False

        self._generator.generate_batch(
            names, max_length=num_new, min_length=num_new, include_prompt_in_result=False, callback=seen
        )
