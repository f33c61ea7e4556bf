"""Make the executor of a pipeline from an engine's configuration."""

import os
import socket
from collections.abc import Callable

from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.assembly import Assembly, Budget, FindStages, StagePlaces
from aici_engine.cluster.link import LinkGroup
from aici_engine.cluster.model_on_disk import ModelOnDisk
from aici_engine.cluster.pipeline import OnLinkLost, PipelineExecutor
from aici_engine.cluster.token import ClusterToken, default_token_path
from aici_engine.config import EngineConfig
from aici_engine.model.compute_device import ComputeDevice


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
    insecure = bool(addresses) and all(address.key is None for address in addresses)
    make = assembly_maker(config, model, lambda: places, budget, insecure=insecure)
    return PipelineExecutor(make, depth=config.depth)


def assembly_maker(
    config: EngineConfig, model: ModelOnDisk, find_stages: FindStages, budget: Budget, *, insecure: bool = False
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
    )


def read_token(config: EngineConfig) -> ClusterToken:
    return ClusterToken.read(config.token_file or default_token_path())


def driver_name() -> str:
    """Return a name that says to a stage that a driver which comes again is the same process."""
    return f"{socket.gethostname()} (process {os.getpid()})"


def useful_pages(config: EngineConfig, compute: ComputeDevice, model: ModelOnDisk) -> int:
    """Return the pages of all sequences at their full length."""
    context = min(model.context, config.max_context or model.context)
    return config.max_num_seqs * -(-context // compute.page_size)
