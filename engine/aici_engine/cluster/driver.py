"""Make the executor of a pipeline from an engine's configuration."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.assembly import Assembly, Budget, FindStages, StagePlaces
from aici_engine.cluster.headers import ModelSizes
from aici_engine.cluster.link import LinkGroup, driver_name
from aici_engine.cluster.model_on_disk import ModelOnDisk
from aici_engine.cluster.node_info import budget as memory_budget
from aici_engine.cluster.node_info import measure_rates
from aici_engine.cluster.pipeline import OnLinkLost, PipelineExecutor
from aici_engine.cluster.plan import NodeInfo, PlanRequest
from aici_engine.cluster.stage_planner import StagePlanner
from aici_engine.cluster.token import ClusterToken, default_token_path
from aici_engine.config import EngineConfig
from aici_engine.model.compute_device import ComputeDevice

_LEAST_CONTEXT: Final = 1024
"""A plan must have room for one sequence of this length, or of the model's context if shorter."""


def make_driver(config: EngineConfig, compute: ComputeDevice) -> PipelineExecutor:
    """Connect to the stages of the configuration, and load the model in all of them.

    Raises AiciError if a stage cannot be had, or the model cannot be divided.
    """
    addresses = tuple(StageAddress.parse(text) for text in config.stages)
    places = StagePlaces(addresses, config.cuts or None)
    model = ModelOnDisk(config, compute)
    budget = Budget(
        num_pages=config.num_pages,
        useful_pages=useful_pages(config, compute, model),
        driver_bytes=int(config.memory_fraction * compute.free_bytes()),
    )
    planner = None
    if places.cuts is None:
        request = plan_request(config, compute, model)
        if config.num_pages is not None:
            request = replace(request, min_pages=config.num_pages)
        planner = StagePlanner(request, model=model.digest, driver=lambda: describe_driver(config, compute))
    insecure = bool(addresses) and all(address.key is None for address in addresses)
    make = assembly_maker(config, model, lambda: places, budget, planner=planner, insecure=insecure)
    return PipelineExecutor(make, depth=config.depth)


def assembly_maker(
    config: EngineConfig,
    model: ModelOnDisk,
    find_stages: FindStages,
    budget: Budget,
    *,
    planner: StagePlanner | None = None,
    insecure: bool = False,
) -> Callable[[OnLinkLost], Assembly]:
    """Return what a PipelineExecutor makes its assembly with."""
    return lambda on_lost: Assembly(
        model,
        find_stages,
        LinkGroup(read_token(config), role="driver", name=driver_name(), insecure=insecure),
        budget=budget,
        max_batch_tokens=config.max_batch_tokens,
        max_context=min(model.context, config.max_context or model.context),
        on_lost=on_lost,
        planner=planner,
    )


def read_token(config: EngineConfig) -> ClusterToken:
    return ClusterToken.read(config.token_file or default_token_path())


def plan_request(config: EngineConfig, compute: ComputeDevice, model: ModelOnDisk) -> PlanRequest:
    """Return what the planner divides. Raises UsageError if the files' headers are no decoder's."""
    context = min(model.context, config.max_context or model.context)
    return PlanRequest(
        sizes=ModelSizes.of(config.model_dir),
        dtype=model.dtype,
        num_pages=config.num_pages or useful_pages(config, compute, model),
        min_pages=-(-min(context, _LEAST_CONTEXT) // compute.page_size),
        page_size=compute.page_size,
        max_batch_tokens=config.max_batch_tokens,
        max_num_seqs=config.max_num_seqs,
    )


def describe_driver(config: EngineConfig, compute: ComputeDevice) -> NodeInfo:
    """Return what the planner needs to know of this process. Measures for about 0.3 s."""
    bytes_per_s, flops_per_s = measure_rates(device=compute.device, num_threads=config.num_threads)
    memory = memory_budget(compute.free_bytes(), memory_bytes=config.driver_bytes)
    return NodeInfo(name="driver", budget_bytes=memory, bytes_per_s=bytes_per_s, flops_per_s=flops_per_s)


def useful_pages(config: EngineConfig, compute: ComputeDevice, model: ModelOnDisk) -> int:
    """Return the pages of all sequences at their full length."""
    context = min(model.context, config.max_context or model.context)
    return config.max_num_seqs * -(-context // compute.page_size)
