"""The executor of a pipeline whose stages are placed on the nodes of a cluster."""

from typing import Any

from aici_engine.cluster.assembly import Budget
from aici_engine.cluster.driver import assembly_maker, describe_driver, plan_request, read_token
from aici_engine.cluster.link import driver_name
from aici_engine.cluster.members import Members, StaticMembers
from aici_engine.cluster.model_on_disk import ModelOnDisk
from aici_engine.cluster.node_links import NodeLinks
from aici_engine.cluster.pipeline import PipelineExecutor
from aici_engine.cluster.placement import ClusterPlacement
from aici_engine.cluster.ray_members import RayMembers
from aici_engine.config import EngineConfig
from aici_engine.model.compute_device import ComputeDevice


class ClusterExecutor(PipelineExecutor):
    """A pipeline that asks a placement for its stages before each epoch."""

    def __init__(self, config: EngineConfig, model: ModelOnDisk, placement: ClusterPlacement, budget: Budget) -> None:
        self._placement = placement
        super().__init__(assembly_maker(config, model, placement.find, budget), depth=config.depth)
        placement.keep_pages(self.num_pages)

    def status(self) -> dict[str, Any]:
        return {**super().status(), "nodes": self._placement.status()}

    def close(self) -> None:
        super().close()
        self._placement.close()


def make_cluster_driver(config: EngineConfig, compute: ComputeDevice) -> ClusterExecutor:
    """Wait until the nodes have room for the model, and load the model in their stages.

    Raises AiciError if the model cannot be divided.
    """
    model = ModelOnDisk(config, compute)
    token = read_token(config)
    driver = describe_driver(config, compute)
    request = plan_request(config, compute, model)
    members: Members = StaticMembers(config.nodes)
    if config.ray_address is not None:
        members = RayMembers(config.ray_address, token.ray_token())
    placement = ClusterPlacement(
        members,
        NodeLinks(members, token, name=driver_name()),
        token,
        request,
        driver,
        pipeline=config.model_dir.name,
        model=model.digest,
        min_nodes=config.min_nodes,
        replan_after_s=config.replan_after_s,
    )
    try:
        placement.wait()
        assert placement.plan is not None
        budget = Budget(config.num_pages, placement.plan.num_pages, driver.budget_bytes)
        return ClusterExecutor(config, model, placement, budget)
    except BaseException:
        placement.close()
        raise
