"""The application and an engine process, without a socket: `aici batch` answers lines by them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aici_base.errors import UnavailableError
from aici_engine.server.api.app import create_app
from aici_engine.server.api.models import make_models
from aici_engine.server.batches.in_process import InProcess, engine_up
from aici_engine.server.batches.line import Line
from aici_engine.server.config import ServerConfig
from aici_engine.server.service.admission import Principal
from aici_engine.server.service.response_store import ResponseStore


@contextlib.asynccontextmanager
async def in_process(config: ServerConfig) -> AsyncIterator[InProcess]:
    """Load a model, and yield what answers lines. The engine process ends with the context.

    Raises UnavailableError if the engine keeps dying.
    """
    with ResponseStore() as kept:
        async with make_models(config) as models:
            await models.load_all()
            app = create_app(models, kept_responses=kept)

            async def ready(line: Line) -> None:
                up, failed = (
                    asyncio.ensure_future(engine_up(models, line)),
                    asyncio.ensure_future(models.all_failed.wait()),
                )
                try:
                    await asyncio.wait((up, failed), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    up.cancel()
                    failed.cancel()
                if models.all_failed.is_set():
                    raise UnavailableError("the engine keeps dying", hint="the log above has its last output")

            yield InProcess(app, Principal(), ready)
