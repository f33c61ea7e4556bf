"""The facts of a whole model, as plain data: importing this module imports no torch."""

from dataclasses import dataclass

from aici_base.ids import TokenId


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a pipeline knows of its model. `name`: its class in transformers. `context`, `eos_tokens`: see `Model`."""

    name: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    context: int
    eos_tokens: frozenset[TokenId]
