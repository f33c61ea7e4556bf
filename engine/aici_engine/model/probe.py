"""Probe a transformers model: run the model once, and refuse a model that paged attention cannot serve.

In the probing run, every attention layer calls `probe_attention`. The call shows the shapes of query, key and value and
all options. The mask arrives as a function, and is compared with our mask at the positions where masks could differ.
"""

from collections.abc import Callable
from typing import Any

import torch

from aici_base.errors import UsageError
from aici_engine.cache.storage import LayerShape

IMPLEMENTATION = "aici_probe"
NEUTRAL = frozenset({"position_ids", "cache_position", "use_cache", "return_dict", "num_items_in_batch"})
"""Options without effect on the result: the batch carries the positions, and our cache is always used."""

MaskFunction = Callable[[int, int, torch.Tensor, torch.Tensor], torch.Tensor]


class WantedMask:
    """The mask function that the model requested from transformers, in the place of the mask tensor."""

    def __init__(self, function: MaskFunction) -> None:
        self.function = function


class Probe:
    """Collects the attention calls of one forward pass. `layers[layer_idx]` is complete after `run`."""

    def __init__(
        self,
        model: Callable[..., object],
        *,
        name: str,
        num_layers: int,
        context: int,
        config: dict[str, Any],
        inputs: dict[str, torch.Tensor] | None = None,
    ) -> None:
        """`model`: the module, or a function with the keywords of its `forward`. `inputs`: two tokens in another form
        than ids."""
        self.layers: dict[int, LayerShape] = {}
        self._model = model
        self._name = name
        self._num_layers = num_layers
        self._context = context
        self._config = config
        self._inputs = {"input_ids": torch.zeros(1, 2, dtype=torch.long)} if inputs is None else inputs

    def run(self) -> list[LayerShape]:
        """Return the shapes of all layers.

        Raises UsageError with the model's name if paged attention cannot serve the model.
        """
        with torch.inference_mode():
            self._model(**self._inputs, position_ids=torch.arange(2)[None], use_cache=False, aici=self)
        if sorted(self.layers) != list(range(self._num_layers)):
            missing = self._num_layers - len(self.layers)
            raise self._refusal(f"{missing} of its {self._num_layers} layers bypass transformers' attention interface")
        return [self.layers[i] for i in range(self._num_layers)]

    def attention(
        self, module: torch.nn.Module, mask: object, options: dict[str, Any], shapes: list[torch.Size]
    ) -> None:
        """Record the call of one layer. `shapes`: of query, key and value."""
        query, key, value = shapes
        layer = getattr(module, "layer_idx", None)
        if not isinstance(layer, int):
            raise self._refusal("its attention layers are not numbered")
        if layer in self.layers:
            raise self._refusal(f"layer {layer} attends twice in one pass")
        if key[2] != query[2]:
            raise self._refusal("it has cross-attention")
        if options.pop("dropout", 0.0):
            raise self._refusal("it uses dropout at inference")
        causal = options.pop("is_causal", None)
        if not (getattr(module, "is_causal", True) if causal is None else causal):
            raise self._refusal("its attention is not causal")
        if query[1] % key[1]:
            raise self._refusal(f"{query[1]} query heads cannot share {key[1]} key heads")
        window = options.pop("sliding_window", None)
        scale, cap, sinks = (options.pop(known, None) for known in ("scaling", "softcap", "s_aux"))
        for option, given in options.items():
            if option not in NEUTRAL and given is not None and given is not False:
                raise self._refusal(f"it wants the attention option {option!r}, which is not implemented")
        self._compare(mask, window)
        self.layers[layer] = LayerShape(
            *(key[1], key[3], value[3]),
            scale=key[3] ** -0.5 if scale is None else float(scale),
            window=window or 0,
            cap=cap or 0.0,
            has_sinks=sinks is not None,
        )

    def _compare(self, mask: object, window: int | None) -> None:
        if not isinstance(mask, WantedMask):
            raise self._refusal("it makes attention masks in a way of its own")
        points = torch.tensor(self._points(window))
        queries, keys = points[:, None], points[None, :]
        ours = keys <= queries
        if window is not None:
            ours &= keys > queries - window
        try:
            theirs = mask.function(0, 0, queries, keys).expand(ours.shape)
        except (IndexError, RuntimeError, TypeError) as error:
            raise self._refusal(f"its attention mask cannot be examined ({error})") from error
        if not torch.equal(ours, theirs):
            raise self._refusal("its attention mask is neither causal nor a sliding window")

    def _points(self, window: int | None) -> list[int]:
        """Positions around every integer of the configuration: a chunk or a window could end at such a number."""
        numbers = {0, 2, self._context - 2, self._context // 2, window or 0}
        numbers |= {value for value in self._config.values() if isinstance(value, int)}
        return sorted({p for n in numbers for p in range(n - 2, n + 3) if 0 <= p < self._context})

    def _refusal(self, reason: str) -> UsageError:
        return UsageError(
            f"{self._name} cannot run on this engine: {reason}",
            hint="use a decoder whose attention goes through transformers' AttentionInterface",
        )


def probe_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: object,
    *,
    aici: Probe,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    aici.attention(module, attention_mask, options, [query.shape, key.shape, value.shape])
    return value.new_zeros(1, query.shape[2], query.shape[1], value.shape[3]), None


def probe_mask(*, mask_function: MaskFunction, **_: object) -> WantedMask:
    return WantedMask(mask_function)
