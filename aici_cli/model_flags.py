"""The flags that name a model: one in this process, or one on a server."""

import gc
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aici_base.errors import UsageError
from aici_cli.flag_groups import Command, with_flags_of
from aici_cli.output import say
from aici_engine.config import (
    DEFAULT_DTYPE,
    DEFAULT_SPECULATION,
    DEVICE_HELP,
    DRAFT_DTYPE_HELP,
    DRAFT_MODEL_HELP,
    DTYPE_HELP,
    KV_CACHE_DTYPE_HELP,
    SPECULATE_HELP,
    Device,
    Dtype,
    KVCacheDtype,
    Speculation,
)

if TYPE_CHECKING:
    import aici


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFlags:
    """The flags as the user gave them. None: the flag was not given. All but `model` and `server` are about an engine
    in this process."""

    model: Annotated[str | None, typer.Option(help="A model's name, folder, .gguf file or hub repository.")] = None
    server: Annotated[
        str | None, typer.Option(envvar="AICI_API_BASE", help="Run on the server at this URL; a key goes behind #key=.")
    ] = None
    dtype: Annotated[Dtype | None, typer.Option(help=f"{DTYPE_HELP} (default: {DEFAULT_DTYPE})")] = None
    kv_cache_dtype: Annotated[KVCacheDtype | None, typer.Option(help=f"{KV_CACHE_DTYPE_HELP} (default: auto)")] = None
    device: Annotated[Device | None, typer.Option(help=f"{DEVICE_HELP} (default: auto)")] = None
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the model (default: one a core).")] = None
    max_forks: Annotated[
        int | None,
        typer.Option(
            min=1, max=256, help="Forks that a controller may make, the first sequence included (default: 16)."
        ),
    ] = None
    adapter: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A LoRA adapter's folder (peft's), merged into the model.")
    ] = None

    speculate: Annotated[
        Speculation | None, typer.Option(help=f"{SPECULATE_HELP} (default: {DEFAULT_SPECULATION})")
    ] = None
    draft_model: Annotated[str | None, typer.Option(metavar="NAME|FOLDER", help=DRAFT_MODEL_HELP)] = None
    draft_dtype: Annotated[Dtype | None, typer.Option(help=DRAFT_DTYPE_HELP)] = None

    def check(self) -> None:
        """Raise UsageError if --server and a flag of the engine were given: a server decides about its own engine."""
        for field in fields(self):
            if self.server is not None and field.name not in ("model", "server") and getattr(self, field.name):
                option = f"--{field.name.replace('_', '-')}"
                of_server = "--lora NAME=FOLDER" if field.name == "adapter" else option
                raise UsageError(
                    f"{option} is not for --server", hint=f"give the server the flag: aici serve {of_server}"
                )

    def open(self, *, controllers: bool) -> "aici.LLM":
        """Return the model, loaded or on the server. Without `controllers`, an engine here takes no constraints."""
        import aici

        if self.server is not None:
            return aici.LLM(self.model, server=self.server)

        from aici_engine.store.resolve import resolve_model

        llm = aici.LLM(
            resolve_model(self.model, say=say),
            dtype=self.dtype,
            device=self.device,
            threads=self.threads,
            max_forks=self.max_forks,
            adapter=self.adapter,
            speculate=self.speculate,
            draft_model=None if self.draft_model is None else resolve_model(self.draft_model, say=say),
            draft_dtype=self.draft_dtype,
            kv_cache_dtype=self.kv_cache_dtype,
            controllers=controllers,
        )
        gc.freeze()  # imports made a million objects that stay; collections need not look at them
        return llm


def with_model_flags(command: Command) -> Command:
    """Decorate a Typer command: the argument `model` becomes the flags of a model."""
    return with_flags_of("model", ModelFlags)(command)
