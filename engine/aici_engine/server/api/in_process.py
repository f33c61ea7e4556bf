"""The application and an engine process, without a socket: `aici batch` answers lines by them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aici_base.errors import UnavailableError
from aici_engine.server.api.app import create_app
from aici_engine.server.api.serve import service_of
from aici_engine.server.batches.in_process import InProcess
from aici_engine.server.config import ServerConfig
from aici_engine.server.link.supervisor import Supervisor
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.response_store import ResponseStore


@contextlib.asynccontextmanager
async def in_process(config: ServerConfig) -> AsyncIterator[InProcess]:
    """Load a model, and yield what answers lines. The engine process ends with the context.

    Raises UnavailableError if the engine keeps dying.
    """
    supervisor = Supervisor(
        config.engine,
        modules=list(config.modules.values()),
        max_forks=config.max_forks,
        log_level=config.log_level,
        log_format=config.log_format,
    )
    with ResponseStore() as kept:
        async with supervisor:
            service = service_of(config, supervisor.client)
            app = create_app(service, kept_responses=kept)

            async def ready() -> None:
                up, failed = (asyncio.ensure_future(each.wait()) for each in (supervisor.client.up, supervisor.failed))
                try:
                    await asyncio.wait((up, failed), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    up.cancel()
                    failed.cancel()
                if supervisor.failed.is_set():
                    raise UnavailableError("the engine keeps dying", hint="the log above has its last output")

            yield InProcess(app, Principal(), ready)
