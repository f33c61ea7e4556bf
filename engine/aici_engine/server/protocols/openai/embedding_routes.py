"""`/v1/embeddings`: vectors from the hidden states of the served model."""

import base64
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from aici_engine.server.gateway import sse
from aici_engine.server.gateway.caller import Caller
from aici_engine.server.gateway.json_route import JsonRoute
from aici_engine.server.gateway.model_use import UseModel
from aici_engine.server.gateway.route_policy import RoutePolicy, with_policy
from aici_engine.server.protocols.openai.embedding_request import EmbeddingRequest
from aici_engine.server.service.embeddings import Vector, embed, normalized
from aici_engine.server.service.service import Generation, Service


def router() -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["openai"], route_class=JsonRoute)

    @routes.post("/embeddings")
    @with_policy(RoutePolicy())
    async def embeddings(request: Request, body: EmbeddingRequest, principal: Caller, use: UseModel) -> Response:
        """Return a vector of length 1 for each input, pooled from the final hidden states of the generation model."""
        service = await use(body.model)

        def encode(vector: Vector) -> bytes:
            unit = normalized(vector, body.dimensions)
            if body.encoding_format == "base64":
                return orjson.dumps(base64.b64encode(unit.astype("<f4").tobytes()).decode())
            return orjson.dumps(unit, option=orjson.OPT_SERIALIZE_NUMPY)

        inputs = await sse.unless_gone(request, body.generations(service))
        vectors = await sse.unless_gone(request, embed(service, principal, inputs, encode))
        return Response(orjson.dumps(_answer(service, body, inputs, vectors)), media_type="application/json")

    return routes


def _answer(service: Service, body: EmbeddingRequest, inputs: list[Generation], vectors: list[bytes]) -> dict[str, Any]:
    """`vectors`: each as JSON. `source` says where the vectors come from: no model for embeddings has made them."""
    num_tokens = sum(len(each.prompt) for each in inputs)
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": orjson.Fragment(vector)}
            for index, vector in enumerate(vectors)
        ],
        "model": service.name,
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
        "source": _SOURCES[body.pooling],
    }


_SOURCES = {
    "mean": "the mean of the final hidden states of a generation model",
    "last": "the final hidden state of the last token in a generation model",
}
