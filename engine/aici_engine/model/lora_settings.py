"""The settings of a LoRA adapter in a folder that `peft` has written. Reads no weights, so torch is not needed."""

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aici_base.errors import UsageError
from aici_engine.model_files import read_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
_READ: Final = {
    "peft_type",
    "r",
    "lora_alpha",
    "alpha_pattern",
    "rank_pattern",
    "use_rslora",
    "init_lora_weights",
    "bias",
}
_WITHOUT_EFFECT: Final = {
    # The names of the tensors say which layers were adapted.
    *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
    # Of the training, or of the place where the adapter was made.
    *("auto_mapping", "base_model_name_or_path", "revision", "task_type", "inference_mode", "lora_dropout"),
    *("fan_in_fan_out", "megatron_core", "runtime_config", "peft_version", "qalora_group_size", "ensure_weight_tying"),
    *("loftq_config", "eva_config", "corda_config", "lora_ga_config"),
}
_PLAIN_INITS: Final = (None, True, False, "gaussian", "orthogonal", "eva")
"""Ways to begin the training that leave the weights of the model as they were."""


class LoraSettings:
    """The settings in `folder`.

    Raises UsageError for a folder without an adapter, and for a setting that would change the result and is not
    supported.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._found: Mapping[str, Any] = read_settings(folder / CONFIG)
        self._check()

    def scale(self, layer: str, *, rank: int) -> float:
        """Return the factor of the product B A of a layer."""
        alpha = float(_of_layer(self._found.get("alpha_pattern"), layer, self._found.get("lora_alpha", 8)))
        return alpha / (math.sqrt(rank) if self._found.get("use_rslora") else rank)

    def refused(self, why: str) -> UsageError:
        """Return the error for an adapter that cannot be used."""
        hint = "name a folder that peft has written, of a LoRA adapter of the same model"
        return UsageError(f"the adapter in {self.folder} cannot be used: {why}", hint=hint)

    def _check(self) -> None:
        found = self._found
        if found.get("peft_type") != "LORA":
            raise self.refused(f"{CONFIG} does not say peft_type LORA" if found else f"{CONFIG} is missing")
        if not (self.folder / WEIGHTS).is_file():
            raise self.refused(f"{WEIGHTS} is missing")
        if found.get("bias", "none") != "none":
            raise self.refused(f"bias is {found['bias']!r}: only the weights of linear layers can be adapted")
        if found.get("init_lora_weights") not in _PLAIN_INITS:
            raise self.refused(f"init_lora_weights is {found['init_lora_weights']!r}, which changes the base model")
        for name, value in found.items():
            if value and name not in _READ and name not in _WITHOUT_EFFECT:
                raise self.refused(f"the setting {name} is not supported")


def _of_layer(patterns: Any, layer: str, default: Any) -> Any:
    """Return the value of the first pattern that matches the end of a layer's name, as `peft` does."""
    for pattern, value in (patterns or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", layer):
            return value
    return default
