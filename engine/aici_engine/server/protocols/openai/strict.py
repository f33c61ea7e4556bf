"""The base of the models of the protocol."""

from aici_engine.server.protocols.strict_body import StrictBody as Strict

__all__ = ["Strict"]
