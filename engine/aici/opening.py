"""The choice of a backend: an engine in this process, or a server."""

from dataclasses import fields
from pathlib import Path

from aici.backend import Backend
from aici.errors import UsageError
from aici.local import LocalBackend, LocalOptions


def open_backend(
    model: str | Path | None, *, server: str | None, api_key: str | None, options: LocalOptions
) -> Backend:
    """Load a model, or return the backend of a server. Raise UsageError for arguments in conflict."""
    if server is None and api_key is not None:
        raise UsageError("api_key has no server to be sent to", hint="give server=")
    if server is None:
        return LocalBackend(model, options)
    for field in fields(options):
        if getattr(options, field.name) != field.default:
            raise UsageError(f"{field.name} does not go with server=", hint="the server decides about its engine")
    from aici.remote.backend import RemoteBackend  # loads httpx

    return RemoteBackend(server, model=None if model is None else str(model), api_key=api_key)
