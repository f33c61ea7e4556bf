"""Makes the models of a server: an engine process for each, one API process for all."""

from collections.abc import Callable
from dataclasses import replace

from aici_controllers.store import Store
from aici_engine.cluster.headers import ModelSizes
from aici_engine.config import EngineConfig
from aici_engine.server.config import ModelConfig, ServerConfig
from aici_engine.server.link.client import EngineClient
from aici_engine.server.link.supervisor import Supervisor
from aici_engine.server.service.admission import Admission
from aici_engine.server.service.constraints import Constraints
from aici_engine.server.service.models import Models
from aici_engine.server.service.served_model import ServedModel
from aici_engine.server.service.service import Service
from aici_engine.server.service.template_processes import TemplateProcesses
from aici_engine.server.telemetry.metrics import Metrics


def make_models(config: ServerConfig) -> Models:
    """Return the models of a server, none of them loaded."""
    store, metrics = Store(fixed=config.modules, is_bounded=True), Metrics()
    constraints, templates = Constraints(store), TemplateProcesses()
    first, limit = config.models[0], config.loading.memory_bytes
    admission = Admission(first.engine.max_num_seqs + config.max_queue)

    def served(model: ModelConfig) -> ServedModel:
        engine = model.engine
        if limit is not None:
            # All caches together have the share of the limit that a cache has of the free memory without a limit.
            share = int(engine.memory_fraction * limit / len(config.models))
            engine = replace(engine, cache_bytes=min(share, engine.cache_bytes or share))
        own = admission if model is first else admission.beside(model.engine.max_num_seqs + config.max_queue)

        def service(client: EngineClient) -> Service:
            return Service(
                client,
                model_dir=model.engine.model_dir,
                name=model.name,
                admission=own,
                limits=config.limits,
                store=store,
                chat_settings=config.chat,
                metrics=metrics,
                constraints=constraints,
                templates=templates,
            )

        return ServedModel(
            model.name,
            # The folder of the base model is a name of the base model alone.
            model_dir=model.engine.lora or model.engine.model_dir,
            parent=None if model.engine.lora is None else first.name,
            admission=own,
            engines=_engines(config, engine),
            service=service,
            aliases=model.aliases,
            is_kept=config.loading.is_for_ever,
            planned_bytes=0 if limit is None else planned_bytes(engine),
        )

    return Models(
        [served(model) for model in config.models],
        limits=config.limits,
        metrics=metrics,
        store=store,
        constraints=constraints,
        templates=templates,
        loading=config.loading,
    )


def planned_bytes(engine: EngineConfig) -> int:
    """Return what the weights and a full cache take at most, from the headers of the model's files."""
    sizes = ModelSizes.of(engine.model_dir)
    dtype = sizes.dtype if engine.dtype == "auto" else engine.dtype
    tokens = engine.max_num_seqs * min(sizes.context, engine.max_context or sizes.context)
    cache = tokens * sizes.token_bytes(sizes.whole, dtype)
    return sizes.weight_bytes(sizes.whole, dtype) + min(cache, engine.cache_bytes or cache)


def _engines(config: ServerConfig, engine: EngineConfig) -> Callable[[], Supervisor]:
    return lambda: Supervisor(
        engine,
        modules=list(config.modules.values()),
        max_forks=config.max_forks,
        has_spare=config.spare_engine,
        log_level=config.log_level,
        log_format=config.log_format,
    )
