"""The processes that render chat templates: one for the models' templates, one for the templates of requests.

A template may compute for ever or fill the memory, so no template renders in the API process. With two processes, no
template of a request delays the chats with the model's template. Keys take turns with templates of requests.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from aici_engine.chat.rendering_process import RenderingProcess
from aici_engine.server.service.turns import Turns

if TYPE_CHECKING:
    from aici_engine.chat.rendering import Render

_R = TypeVar("_R")
_EVERYBODY: Final = ""


class TemplateProcesses:
    """The processes start when they are needed first, and end with `close`."""

    def __init__(self) -> None:
        self._processes = RenderingProcess(), RenderingProcess()
        self.own: Render = self._processes[0]
        self.of_requests: Render = self._processes[1]
        self._turns_of_own = Turns(1, most_per_key=1)
        self._turns_of_requests = Turns(1, most_per_key=1)

    async def with_own(self, work: Callable[[], _R]) -> _R:
        """Run `work`, which renders a model's own template, in a thread."""
        return await self._turns_of_own.in_thread(_EVERYBODY, work)

    async def with_request(self, key: str, work: Callable[[], _R]) -> _R:
        """Run `work`, which renders a template of a request of `key`, in a thread."""
        return await self._turns_of_requests.in_thread(key, work)

    async def close(self) -> None:
        for process in self._processes:
            await asyncio.to_thread(process.close)
