"""`--model`, `--name`, `--alias` and `--lora` of `aici serve`: which models, under which names."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from aici_base.errors import UsageError

MODEL_HELP: Final = (
    "A model's name, folder, .gguf file or hub repository, after the name for clients, if any; repeat for more models."
)
ALIAS_HELP: Final = "A further name of a model for clients (default: of the first model); repeat for more."
LORA_HELP: Final = (
    "A LoRA adapter's folder (peft's), served as a model: the first model with the adapter merged; repeat for more."
)


LoadTime: TypeAlias = Literal["start", "on-demand"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """`model`: a value that `resolve_model` takes. `name`: for clients; None takes the folder's name."""

    model: str | None
    name: str | None = None
    aliases: tuple[str, ...] = ()


def named_models(models: Sequence[str], *, name: str | None = None, aliases: Sequence[str] = ()) -> list[NamedModel]:
    """Return the models of the flags, at least one: the default model.

    Raises UsageError for an alias of a model that is not served, and for `name` beside several models.
    """
    found = [_named(text) for text in models] or [NamedModel(model=None)]
    if name is not None:
        if len(found) > 1 or found[0].name is not None:
            raise UsageError(
                "--name is for one model without a name of its own", hint="write --model NAME=MODEL for each model"
            )
        found[0] = NamedModel(model=found[0].model, name=name)
    owners = [_owner(alias, found) for alias in aliases]
    return [
        NamedModel(model=each.model, name=each.name, aliases=tuple(alias for alias, owner in owners if owner is each))
        for each in found
    ]


def adapters(texts: Sequence[str]) -> dict[str, Path]:
    """Return the folders of `--lora` by name. Raises UsageError for a folder without a LoRA adapter."""
    from aici_engine.model.lora_settings import LoraSettings

    found: dict[str, Path] = {}
    for text in texts:
        name, equals, folder = text.partition("=")
        if not (name and equals and folder) or "/" in name:
            raise UsageError(f"--lora {text}: a name or a folder is missing", hint="write --lora NAME=FOLDER")
        if name in found:
            raise UsageError(f"two adapters are called {name}", hint="give each adapter a name of its own")
        found[name] = LoraSettings(Path(folder).expanduser().resolve()).folder
    return found


def _named(text: str) -> NamedModel:
    name, equals, model = text.partition("=")
    # A name has no slash; a path that exists is a path, also with "=" in it.
    if not equals or "/" in name or Path(text).expanduser().exists():
        return NamedModel(model=text)
    if not name or not model:
        raise UsageError(f"--model {text}: a name or a model is missing", hint="write --model NAME=MODEL")
    return NamedModel(model=model, name=name)


def _owner(text: str, models: Sequence[NamedModel]) -> tuple[str, NamedModel]:
    """Return the alias, and its model."""
    alias, equals, wanted = text.rpartition("=")
    if not equals:
        return text, models[0]
    for model in models:
        if wanted in (model.name, model.model):
            return alias, model
    names = ", ".join(model.name or model.model or "default" for model in models)
    raise UsageError(f"--alias {text}: no --model is called {wanted}", hint=f"write --alias ALIAS=NAME; names: {names}")
