"""What a source of tensors holds, for a pipeline: by the files alone for a known family, else by transformers."""

from aici_engine.extras import needed_for
from aici_engine.model.model_facts import ModelFacts
from aici_engine.model.stage_range import LayerRange
from aici_engine.model.tensor_source import TensorSource
from aici_engine.native.from_folder import known_weights
from aici_engine.native.known_model import NotKnownError, known_model


def describe(source: TensorSource) -> ModelFacts:
    """Return the facts of a model without reading a tensor. Raises UsageError if the configuration is no decoder's.

    >>> describe(FolderSource(folder)).name
    'LlamaForCausalLM'
    """
    try:
        config = known_model(source.config, source.generation_config).config
    except NotKnownError as why:
        with needed_for(f"a model in stages, because {why}"):
            from aici_engine.model import load_stage
        return load_stage.describe(source)
    return ModelFacts(
        name=config.name,
        num_layers=config.part.num_layers,
        hidden_size=config.hidden_size,
        vocab_size=config.vocab_size,
        context=config.context,
        eos_tokens=frozenset(config.eos_tokens),
    )


def stage_tensors(source: TensorSource, part: LayerRange) -> list[str]:
    """Return the names of the tensors that a range needs, sorted. No tensor is read.

    Raises UsageError if the model cannot run in stages, or tensors are missing.
    """
    try:
        return known_weights(source, part, dtype="auto").names
    except NotKnownError as why:
        with needed_for(f"a model in stages, because {why}"):
            from aici_engine.model import load_stage
        return load_stage.stage_tensors(source, part)
