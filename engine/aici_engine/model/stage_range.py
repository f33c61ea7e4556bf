"""The layers of a stage, as plain data: importing this module imports no torch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerRange:
    """Layers `first` to `last` - 1, with the embedding before or the final norm and the head after, if the range has
    these. The range of layers may be empty."""

    first: int
    last: int
    embedding: bool
    head: bool

    @property
    def num_layers(self) -> int:
        return self.last - self.first
