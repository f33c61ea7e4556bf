"""Log-probabilities of an answer's tokens, as the protocols of OpenAI write them."""

from collections.abc import Sequence
from typing import Any

from aici_engine.server.link.wire import TokenOut
from aici_engine.vocabulary import ModelVocabulary


def token_logprobs(vocabulary: ModelVocabulary, tokens: Sequence[TokenOut]) -> list[dict[str, Any]]:
    """Return an entry for each token. EOS and other tokens without bytes are left out."""

    def entry(token: int, logprob: float | None) -> dict[str, Any]:
        data = vocabulary.bytes_of(token)
        return {"token": token_text(data) or vocabulary.name_of(token), "logprob": logprob, "bytes": list(data)}

    return [
        {**entry(token.token, token.logprob), "top_logprobs": [entry(*each) for each in token.top]}
        for token in tokens
        if token.data
    ]


def token_text(data: bytes) -> str:
    """Return the text of a token. Bytes that are not UTF-8 on their own are written like `\\xe2\\x86`."""
    return data.decode() if is_text(data) else "".join(f"\\x{byte:02x}" for byte in data)


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
