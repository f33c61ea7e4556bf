"""Makes the models of a server: an engine process for each, one API process for all."""

from collections.abc import Callable

from aici_controllers.store import Store
from aici_engine.server.config import ModelConfig, ServerConfig
from aici_engine.server.link.client import EngineClient
from aici_engine.server.link.supervisor import Supervisor
from aici_engine.server.service.admission import Admission
from aici_engine.server.service.constraints import Constraints
from aici_engine.server.service.models import Models
from aici_engine.server.service.served_model import ServedModel
from aici_engine.server.service.service import Service
from aici_engine.server.telemetry.metrics import Metrics


def make_models(config: ServerConfig) -> Models:
    """Return the models of a server, none of them loaded."""
    store, metrics = Store(fixed=config.modules), Metrics()
    constraints = Constraints(store.fixed)
    first = config.models[0]
    admission = Admission(first.engine.max_num_seqs + config.max_queue)

    def served(model: ModelConfig) -> ServedModel:
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
            )

        return ServedModel(
            model.name,
            model_dir=model.engine.model_dir,
            admission=own,
            engines=_engines(config, model),
            service=service,
            aliases=model.aliases,
        )

    return Models(
        [served(model) for model in config.models],
        limits=config.limits,
        metrics=metrics,
        store=store,
        constraints=constraints,
    )


def _engines(config: ServerConfig, model: ModelConfig) -> Callable[[], Supervisor]:
    return lambda: Supervisor(
        model.engine,
        modules=list(config.modules.values()),
        max_forks=config.max_forks,
        log_level=config.log_level,
        log_format=config.log_format,
    )
