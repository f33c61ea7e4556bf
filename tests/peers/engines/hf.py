"""transformers (Hugging Face), `generate` in torch."""

from typing import Any

NAME = "hf"
PACKAGES = ("transformers",)
FORMS = ("float32", "bfloat16")


class Engine:
    def __init__(self, job: dict[str, Any]) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(job["threads"])
        model: Any = AutoModelForCausalLM
        self._model = model.from_pretrained(job["model"], dtype=getattr(torch, job["form"])).to(job["device"])

    def run(self, prompts: list[list[int]], num_new: int, out: Any) -> None:
        import torch

        def seen(ids: Any, *_: Any, **__: Any) -> Any:
            out.step(ids[:, -1].tolist())
            return torch.zeros(len(ids), dtype=torch.bool, device=ids.device)

        ids = torch.tensor(prompts, device=self._model.device)
        options = {"min_new_tokens": num_new, "max_new_tokens": num_new, "do_sample": False, "pad_token_id": 0}
        self._model.generate(ids, attention_mask=torch.ones_like(ids), stopping_criteria=[seen], **options)
