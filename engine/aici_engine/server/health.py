"""What an operator asks: is it alive, is it ready, how is it doing."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from aici_engine.server.service import Service


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["operations"])

    @routes.get("/health")
    async def health() -> JSONResponse:
        """503 while there is no engine: it crashed, and another is being started."""
        up = service.client.is_ready
        status = {"status": "ok" if up else "unavailable", "model_loaded": up}
        return JSONResponse(status, 200 if up else 503)

    @routes.get("/ready")
    async def ready() -> JSONResponse:
        """503 also while the server drains: send no more requests."""
        ready = service.client.is_ready and not service.admission.draining
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    @routes.get("/stats")
    async def stats() -> dict[str, Any]:
        stats: dict[str, Any] = await service.client.call("stats")
        return stats

    return routes
