"""OpenVINO GenAI, its pipeline with continuous batching. Conversion needs optimum-intel, torch and transformers beside
the package."""

import os
from typing import Any

NAME = "openvino-genai"
PACKAGES = ("openvino-genai",)
FORMS = ("int8",)


def prepare(job: dict[str, Any]) -> None:
    from optimum.exporters.openvino import main_export
    from optimum.intel import OVConfig

    part = f"{job['made']}.part"
    config = OVConfig(quantization_config={"bits": 8, "sym": True})
    main_export(job["model"], part, task="text-generation-with-past", ov_config=config, convert_tokenizer=True)
    os.rename(part, job["made"])


class Engine:
    def __init__(self, job: dict[str, Any]) -> None:
        import openvino_genai

        self._lib: Any = openvino_genai
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.max_num_seqs = job["batch"]
        scheduler.cache_size = 1  # GB
        scheduler.enable_prefix_caching = False
        self._pipe: Any = openvino_genai.ContinuousBatchingPipeline(
            job["made"], scheduler, job["device"].upper(), {"INFERENCE_NUM_THREADS": job["threads"]}
        )

    def run(self, prompts: list[list[int]], num_new: int, out: Any) -> None:
        import numpy as np
        from openvino import Tensor

        config = self._lib.GenerationConfig(max_new_tokens=num_new, ignore_eos=True, do_sample=False)
        handles = [
            self._pipe.add_request(number, Tensor(np.array([prompt], np.int64)), config)
            for number, prompt in enumerate(prompts)
        ]
        while self._pipe.has_non_finished_requests():
            self._pipe.step()
            for number, handle in enumerate(handles):
                if handle.can_read():
                    for output in handle.read().values():
                        out.add(number, list(output.generated_ids))
