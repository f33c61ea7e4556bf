"""Makes the models of a server: an engine process for each, or several, and one API process for all."""

from collections.abc import Callable
from dataclasses import replace

from aici_controllers.store import Store
from aici_engine.cluster.headers import ModelSizes
from aici_engine.config import Dtype, EngineConfig, KVCacheDtype
from aici_engine.server.config import ModelConfig, ServerConfig
from aici_engine.server.fleet.cores import CoreShare, divide, physical_cores
from aici_engine.server.fleet.fleet import ReplicaFleet
from aici_engine.server.fleet.scaling import ScalingRules
from aici_engine.server.link.client import EngineClient
from aici_engine.server.link.model_client import Engines, ModelClient
from aici_engine.server.link.supervisor import Supervisor
from aici_engine.server.service.admission import Admission
from aici_engine.server.service.constraints import Constraints
from aici_engine.server.service.key_counts import KeyCounts
from aici_engine.server.service.models import Models
from aici_engine.server.service.served_model import ServedModel
from aici_engine.server.service.service import Service
from aici_engine.server.service.template_processes import TemplateProcesses
from aici_engine.server.telemetry.metrics import Metrics


def make_models(config: ServerConfig, counts: KeyCounts | None = None) -> Models:
    """Return the models of a server, not loaded yet. `counts`: of the keys; default: of this server alone."""
    store, metrics = Store(fixed=config.modules, is_bounded=True), Metrics()
    constraints, templates = Constraints(store), TemplateProcesses()
    first, limit = config.models[0], config.loading.memory_bytes

    def capacity(model: ModelConfig) -> int:
        return config.replicas.most * model.engine.max_num_seqs + config.max_queue

    admission = Admission(capacity(first), counts=counts)

    def served(model: ModelConfig) -> ServedModel:
        engine = model.engine
        if limit is not None:
            # All caches together have the share of the limit that a cache has of the free memory without a limit.
            share = int(engine.memory_fraction * limit / len(config.models))
            engine = replace(engine, cache_bytes=min(share, engine.cache_bytes or share))
        own = admission if model is first else admission.beside(capacity(model))

        def service(client: ModelClient) -> Service:
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
            engines=_engines(config, engine, store),
            service=service,
            aliases=model.aliases,
            is_kept=config.loading.is_for_ever,
            planned_bytes=0 if limit is None else config.replicas.most * planned_bytes(_of_replica(config, engine)),
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
    """Return what the weights and a full cache take at most, from the headers of the model's files.

    The draft model counts, with its pages.
    """
    sizes = ModelSizes.of(engine.model_dir)
    tokens = engine.max_num_seqs * min(sizes.context, engine.max_context or sizes.context)
    weights, token_bytes = _sizes(sizes, engine.dtype, engine.kv_cache_dtype)
    if engine.draft_model is not None:
        drafts = ModelSizes.of(engine.draft_model)
        more, more_bytes = _sizes(drafts, engine.draft_dtype or engine.dtype, engine.kv_cache_dtype)
        weights, token_bytes = weights + more, token_bytes + more_bytes
    cache = tokens * token_bytes
    return weights + min(cache, engine.cache_bytes or cache)


def _sizes(sizes: ModelSizes, dtype: Dtype, kv_cache_dtype: KVCacheDtype) -> tuple[int, int]:
    """Return the bytes of the weights, and of a token in the cache."""
    dtype = sizes.dtype if dtype == "auto" else dtype
    return sizes.weight_bytes(sizes.whole, dtype), sizes.token_bytes(sizes.whole, dtype, kv_cache_dtype)


def _engines(config: ServerConfig, engine: EngineConfig, store: Store) -> Callable[[], Engines]:
    def supervisor(engine: EngineConfig, share: CoreShare | None, client: EngineClient | None) -> Supervisor:
        return Supervisor(
            engine,
            modules=list(config.modules.values()),
            max_forks=config.max_forks,
            has_spare=config.spare_engine,
            cpus=() if share is None else share.cpus,
            client=client,
            log_level=config.log_level,
            log_format=config.log_format,
        )

    def replica(_: int, share: CoreShare, client: EngineClient) -> Supervisor:
        return supervisor(replace(_of_replica(config, engine), num_threads=share.num_threads), share, client)

    def fleet() -> ReplicaFleet:
        count = config.replicas
        shares = divide(physical_cores(), count.most, engine.num_threads, pins=count.pins)
        return ReplicaFleet(
            replica, shares, ScalingRules(least=count.least, most=count.most, down_after_s=count.down_after_s)
        )

    if config.replicas.places is not None:
        # Imported here: a server on one machine needs no parts of a cluster.
        from aici_engine.server.api.remote_fleet import remote_fleet

        return lambda: remote_fleet(config, engine, store)
    return fleet if config.replicas.most > 1 else lambda: supervisor(engine, None, None)


def _of_replica(config: ServerConfig, engine: EngineConfig) -> EngineConfig:
    """Return the configuration of a replica: the memory for caches is divided among the replicas, and replicas do not
    share a GPU."""
    most = config.replicas.most
    return replace(
        engine,
        device="cpu" if most > 1 else engine.device,
        memory_fraction=engine.memory_fraction / most,
        cache_bytes=None if engine.cache_bytes is None else max(1, engine.cache_bytes // most),
    )
