"""The API process as an ASGI application: the protocols side by side over one Service."""

from fastapi import FastAPI

from aici_engine.server import errors, health
from aici_engine.server.service import Service


def create_app(service: Service) -> FastAPI:
    app = FastAPI(title="aici", docs_url=None, redoc_url=None)
    errors.install(app)
    app.include_router(health.router(service))
    return app
