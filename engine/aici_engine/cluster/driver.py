"""Make the executor of a pipeline from an engine's configuration."""

import os
import socket

from aici_engine.cluster.address import StageAddress
from aici_engine.cluster.assembly import Assembly, Budget, FindStages, StagePlaces
from aici_engine.cluster.link import LinkGroup
from aici_engine.cluster.model_on_disk import ModelOnDisk
from aici_engine.cluster.pipeline import PipelineExecutor
from aici_engine.cluster.token import ClusterToken, default_token_path
from aici_engine.config import EngineConfig
from aici_engine.model.compute_device import ComputeDevice


def make_driver(
    config: EngineConfig, compute: ComputeDevice, find_stages: FindStages | None = None
) -> PipelineExecutor:
    """Connect to the stages, and load the model in all of them.

    `find_stages`: where the stages are; by default at the addresses of the configuration. Raises AiciError if a stage
    cannot be had, or the model cannot be divided.
    """
    addresses = tuple(StageAddress.parse(text) for text in config.stages)
    fixed = StagePlaces(addresses, config.cuts or None)
    token = ClusterToken.read(config.token_file or default_token_path())
    model = ModelOnDisk(config, compute)
    context = min(model.context, config.max_context or model.context)
    budget = Budget(
        num_pages=config.num_pages,
        useful_pages=config.max_num_seqs * -(-context // compute.page_size),
        driver_bytes=int(config.memory_fraction * compute.free_bytes()),
    )
    # The name says to a stage that a driver which comes again is the same process.
    name = f"{socket.gethostname()} (process {os.getpid()})"
    insecure = bool(addresses) and all(address.key is None for address in addresses)
    return PipelineExecutor(
        lambda on_lost: Assembly(
            model,
            find_stages or (lambda: fixed),
            LinkGroup(token, role="driver", name=name, insecure=insecure),
            budget=budget,
            max_batch_tokens=config.max_batch_tokens,
            max_context=context,
            on_lost=on_lost,
        ),
        depth=config.depth,
    )
