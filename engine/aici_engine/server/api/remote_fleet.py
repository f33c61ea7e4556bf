"""Makes the replicas of a model that run on other machines."""

from typing import Any, Final

from aici_controllers.store import Store
from aici_engine.cluster.headers import ModelSizes
from aici_engine.cluster.link import driver_name
from aici_engine.cluster.members import Members, StaticMembers
from aici_engine.cluster.node_links import NodeLinks
from aici_engine.cluster.ray_members import RayMembers
from aici_engine.cluster.token import ClusterToken, default_token_path
from aici_engine.config import EngineConfig
from aici_engine.server.config import ReplicaPlaces, ServerConfig
from aici_engine.server.fleet.cores import CoreShare
from aici_engine.server.fleet.fleet import ReplicaFleet
from aici_engine.server.fleet.scaling import ScalingRules
from aici_engine.server.link.client import EngineClient
from aici_engine.server.link.supervisor import Supervisor
from aici_engine.server.remote.node_places import NodePlaces
from aici_engine.server.remote.placed_engine import PlacedEngine
from aici_engine.server.remote.places import EnginePlaces, FixedPlaces
from aici_engine.server.remote.remote_engine import maker

_LEAST_CONTEXT: Final = 1024
_NO_CORES: Final = CoreShare((), 0)


def remote_fleet(config: ServerConfig, engine: EngineConfig, store: Store) -> ReplicaFleet:
    """Return a fleet, not started. Raises AiciError without the cluster's token."""
    count = config.replicas
    assert count.places is not None
    patience_s = count.places.patience_s
    token = ClusterToken.read(count.places.token_file or default_token_path())
    places = _places(count.places, engine, token)

    def replica(number: int, _: CoreShare, client: EngineClient) -> Any:
        place = places.place()
        place.on_leaving = lambda: fleet.move(number)
        supervisor = Supervisor(
            engine,
            modules=[],
            max_forks=config.max_forks,
            client=client,
            make=maker(place, token=token, store=store, patience_s=patience_s),
        )
        return PlacedEngine(supervisor, place)

    rules = ScalingRules(least=count.least, most=count.most, down_after_s=count.down_after_s)
    fleet = ReplicaFleet(replica, [_NO_CORES] * count.most, rules, places=places)
    return fleet


def _places(places: ReplicaPlaces, engine: EngineConfig, token: ClusterToken) -> EnginePlaces:
    if places.engines:
        return FixedPlaces(places.engines)
    members: Members = StaticMembers(places.nodes)
    if places.ray_address is not None:
        members = RayMembers(places.ray_address, token.ray_token())
    links = NodeLinks(members, token, name=driver_name())
    return NodePlaces(members, links, name=f"replica of {engine.model_dir.name}", needed_bytes=_least_bytes(engine))


def _least_bytes(engine: EngineConfig) -> int:
    """Return the memory of the weights and of one short sequence: a node with less is of no use."""
    sizes = ModelSizes.of(engine.model_dir)
    dtype = sizes.dtype if engine.dtype == "auto" else engine.dtype
    tokens = min(_LEAST_CONTEXT, sizes.context, engine.max_context or sizes.context)
    return sizes.weight_bytes(sizes.whole, dtype) + tokens * sizes.token_bytes(sizes.whole, dtype)
