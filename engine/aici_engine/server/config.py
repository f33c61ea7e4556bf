"""The settings of `aici serve`."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from aici_base.errors import UsageError
from aici_engine.chat.settings import ChatSettings
from aici_engine.config import EngineConfig, no_drafts

LogFormat: TypeAlias = Literal["json", "text"]

MAX_BODY_BYTES: Final = 8 << 20
"""Of a request, and of a line of a batch, unless the server is told otherwise."""


class TlsFiles(NamedTuple):
    """PEM files. `client_ca`: only clients with a certificate signed by one of these are served."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """The limits of one request.

    `body_timeout_s`: the time for the body to arrive. `request_timeout_s`: the time after the body, including the wait
    in the queue. When that time is over, the request's sequences fail with an error in the protocol's shape. `grace_s`
    later the server ends everything else: requests without sequences, and clients that do not read.
    """

    max_body_bytes: int = MAX_BODY_BYTES
    body_timeout_s: float = 60.0
    request_timeout_s: float = 600.0
    grace_s: float = 5.0

    def __post_init__(self) -> None:
        for name in ("max_body_bytes", "body_timeout_s", "request_timeout_s", "grace_s"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} must be above 0, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptResponsesLimits:
    """The limits of kept responses. `ttl_s`: the time after the last use of a response until it is forgotten.

    Where a bound is reached, the responses that were not used for longest are forgotten: an owner's own responses, or
    those of the largest owner where `max_bytes` is reached.
    """

    ttl_s: float = 30 * 86400.0
    max_bytes: int = 1 << 30
    max_owner_bytes: int = 128 << 20
    max_owner_responses: int = 10_000

    def __post_init__(self) -> None:
        for name in ("ttl_s", "max_bytes", "max_owner_bytes", "max_owner_responses"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} must be above 0, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One model of a server. `name`: in responses. `aliases`: further names for requests."""

    engine: EngineConfig
    name: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFilesLimits:
    """The limits of files and batches. `ttl_s`: the time after which a file, or a batch that has ended, is forgotten.

    Where a bound is reached, an upload or a new batch is refused. Nothing is forgotten before its time. Results of a
    running batch count too: where they do not fit, the batch ends with the results so far.
    """

    ttl_s: float = 30 * 86400.0
    max_bytes: int = 8 << 30
    max_owner_bytes: int = 2 << 30
    max_owner_files: int = 1000
    max_owner_batches: int = 100
    max_lines: int = 50_000
    window_s: float = 86400.0

    def __post_init__(self) -> None:
        for field_ in fields(self):
            if getattr(self, field_.name) <= 0:
                raise UsageError(f"{field_.name} must be above 0, not {getattr(self, field_.name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLoading:
    """When models are loaded and unloaded.

    `on_demand`: a model is loaded when a request names it; otherwise all are loaded at the start, as far as they fit.
    `unload_after_s`: a model that is not used for so long is unloaded; None: never. `memory_bytes`: of the weights and
    caches of all loaded models together; for more, the least recently used idle models are unloaded. `timeout_s`: the
    time that a request waits for a model.
    """

    on_demand: bool = False
    unload_after_s: float | None = None
    memory_bytes: int | None = None
    timeout_s: float = 300.0

    def __post_init__(self) -> None:
        for name in ("unload_after_s", "memory_bytes", "timeout_s"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UsageError(f"{name} must be above 0, not {value}")

    @property
    def is_for_ever(self) -> bool:
        """Whether every model is loaded as long as the server runs."""
        return not self.on_demand and self.unload_after_s is None and self.memory_bytes is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlaces:
    """The machines of replicas, if not this machine: one of the three.

    `engines`: addresses of hosts (`aici engine`). `nodes`: addresses of node daemons (`aici node join`).
    `ray_address`: HOST:PORT of a cluster's Ray, which knows the nodes. `token_file`: with the cluster's token; None
    takes the token in the folder of settings. `patience_s`: requests without a replica wait so long for a machine.
    """

    engines: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    ray_address: str | None = None
    token_file: Path | None = None
    patience_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCount:
    """How many engine processes each model has: from `least` to `most`, by the load. `down_after_s`: so many seconds
    with fewer sequences than replicas end a replica. `pins`: a replica stays on separate cores. `places`: the machines
    of the replicas; None is this machine."""

    least: int = 1
    most: int = 1
    down_after_s: float = 15.0
    pins: bool = True
    places: ReplicaPlaces | None = None

    @property
    def are_several(self) -> bool:
        """Whether each model has a fleet, possibly of one replica on another machine."""
        return self.most > 1 or self.places is not None

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise UsageError(
                f"there are {self.least} to {self.most} replicas",
                hint="give at least 1, and no more at the least than at the most",
                cli_hint="write --replicas 2, or --replicas 1:4",
            )
        if self.down_after_s <= 0:
            raise UsageError(f"down_after_s must be above 0, not {self.down_after_s}")
        num_engines = 0 if self.places is None else len(self.places.engines)
        if num_engines and self.most > num_engines:
            raise UsageError(
                f"there are {num_engines} engines for {self.most} replicas",
                hint="give the address of an engine for each replica",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """`models`: the first answers requests that name no model. `port` 0 takes a free port. `max_queue`: waiting
    sequences of a model, in addition to running sequences. `max_forks`: the most forks of a sequence. `modules`:
    controllers that the server starts with, name → file. `responses_file`: keeps responses; with None they are kept in
    memory. `batches_file`: the same for files and batches.

    `max_connections`: open at a time; None: as many as the limit of open files leaves.

    With `api_key_file` None, everybody who can reach `host` may use the server. With `cors_origins` empty, scripts of
    other web pages cannot read responses. `allowed_hosts`: further host names of this machine (`gateway.web_pages`).
    `spare_engine`: each loaded model has a second engine process, which takes over when the first dies.
    `replicas`: of each loaded model.
    `has_console`: serve the web page, if built.
    `shares_port`: several servers listen on `host` and `port`, and share the connections. `limits_file`: holds the
    counts for the limits of API keys, shared by all servers that name the file; with None the counts are of this server
    alone.
    `trusted_proxies`: addresses and networks whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.
    """

    models: tuple[ModelConfig, ...]
    loading: ModelLoading = field(default_factory=ModelLoading)
    host: str = "127.0.0.1"
    port: int = 4242
    shares_port: bool = False
    api_key_file: Path | None = None
    limits_file: Path | None = None
    max_queue: int = 256
    max_forks: int = 16
    max_connections: int | None = None
    spare_engine: bool = False
    replicas: ReplicaCount = field(default_factory=ReplicaCount)
    limits: RequestLimits = field(default_factory=RequestLimits)
    chat: ChatSettings = field(default_factory=ChatSettings)
    responses_file: Path | None = None
    responses_limits: KeptResponsesLimits = field(default_factory=KeptResponsesLimits)
    batches_file: Path | None = None
    batches_limits: KeptFilesLimits = field(default_factory=KeptFilesLimits)
    drain_timeout_s: float = 30.0
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    tls: TlsFiles | None = None
    has_console: bool = True
    modules: Mapping[str, Path] = field(default_factory=dict)
    log_level: str = "INFO"
    log_format: LogFormat = "text"

    def __post_init__(self) -> None:
        self._check_models()
        if not 0 <= self.port <= 65535:
            raise UsageError(f"port must be 0 to 65535, not {self.port}", hint="0 takes a free port")
        if self.max_queue < 0:
            raise UsageError(f"max_queue must be 0 or more, not {self.max_queue}")
        if self.drain_timeout_s <= 0:
            raise UsageError(f"drain_timeout_s must be above 0, not {self.drain_timeout_s}")

        for proxy in self.trusted_proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError as error:
                raise UsageError(
                    f"the trusted proxy {proxy} is neither an address nor a network: {error}",
                    hint="give one like 10.0.0.1 or 10.0.0.0/24",
                ) from error

    def _check_models(self) -> None:
        if not self.models:
            raise UsageError("a server has at least one model")
        owners: dict[str, ModelConfig] = {}
        for model in self.models:
            for name in (model.name, *model.aliases):
                if owners.setdefault(name, model) is not model:
                    raise UsageError(
                        f"two models are called {name}",
                        hint="give each model a name of its own",
                        cli_hint="--model NAME=MODEL gives a model a name of its own",
                    )
        if len(self.models) > 1 and any(each.engine.draft_model is not None for each in self.models):
            raise no_drafts("a draft model guesses for one model, and this server has several", param="draft_model")
        divided = [each for each in self.models if each.engine.stages or each.engine.nodes or each.engine.ray_address]
        if self.replicas.are_several:
            self._check_replicas(is_divided=bool(divided))
        if divided and self.spare_engine:
            raise UsageError(
                "a model that is divided over machines has no spare engine",
                hint="leave the spare engine out",
                cli_hint="leave --spare-engine out",
            )
        if divided and (len(self.models) > 1 or not self.loading.is_for_ever):
            raise UsageError(
                "a model that is divided over machines is the only model of its server, and always loaded",
                hint="start one server for every divided model",
            )

    def _check_remote(self) -> None:
        if len(self.models) > 1 or not self.loading.is_for_ever:
            raise UsageError(
                "a model with replicas on other machines is the only model of its server, and always loaded",
                hint="start one server for every such model",
            )
        if self.models[0].engine.lora is not None:
            raise UsageError(
                "a model with an adapter has no replicas on other machines",
                hint="merge the adapter into the model's files with peft",
            )
        if self.models[0].engine.draft_model is not None:
            raise no_drafts("replicas on other machines have no draft model", param="draft_model")

    def _check_replicas(self, *, is_divided: bool) -> None:
        if is_divided:
            raise UsageError(
                "a model that is divided over machines has no replicas here",
                hint="start one server for every pipeline, and put a load balancer in front of them",
                cli_hint="leave --replicas out",
            )
        if vllm := next((each for each in self.models if each.engine.vllm is not None), None):
            raise UsageError(
                f"the model {vllm.name} has no replicas: vLLM computes it",
                hint="start one server for every engine, and put a load balancer in front of them",
                cli_hint="leave --replicas out",
            )
        if self.spare_engine:
            raise UsageError(
                "a model with replicas has no spare engine: the other replicas take over",
                hint="leave the spare engine out",
                cli_hint="leave --spare-engine out",
            )
        if self.replicas.least < self.replicas.most and self.loading.memory_bytes is not None:
            raise UsageError(
                "a model whose replicas follow the load takes no fixed part of the memory for models",
                hint="give a fixed number of replicas, or no limit of the memory",
                cli_hint="leave --models-memory out, or give --replicas without a colon",
            )
        if self.replicas.places is not None:
            self._check_remote()
        if gpu := next((each for each in self.models if each.engine.device == "cuda"), None):
            raise UsageError(
                f"the model {gpu.name} has no replicas on a GPU: all of them would use the same GPU",
                hint="start one server for every GPU, and put a load balancer in front of them",
                cli_hint="leave --replicas out, or give --device cpu",
            )
