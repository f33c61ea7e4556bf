"""Queries with the LMQL client, in a separate process: `lmql_queries.py ENDPOINT TOKENIZER GUARDED`.

Prints JSON. GUARDED is an endpoint with a key.
"""

import asyncio
import json
import sys

import lmql

ENDPOINT, TOKENIZER, GUARDED = sys.argv[1:]
MODEL = lmql.model("default", endpoint=ENDPOINT, tokenizer=TOKENIZER)
CAPITAL = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"


@lmql.query(model=MODEL)
async def number():
    """lmql
    argmax
        "One plus one equals[N]" where INT(N) and len(TOKENS(N)) < 4
        return N
    """


@lmql.query(model=MODEL)
async def choice():
    """lmql
    argmax
        "The colour of the sky is[C]" where C in [" green", " blue", " a very dark grey"]
        return C
    """


@lmql.query(model=MODEL)
async def stops_at():
    """lmql
    argmax
        "A list of fruit: apples, pears,[X]" where STOPS_AT(X, ",") and len(TOKENS(X)) < 20
        return X
    """


@lmql.query(model=MODEL)
async def dense():
    """lmql
    argmax
        "Once upon a time[X]" where not "a" in X and len(TOKENS(X)) < 8
        return X
    """


@lmql.query(model=MODEL)
async def sampled():
    """lmql
    sample(n=2, temperature=0.9)
        "Once upon a time[X]" where len(TOKENS(X)) < 8
        return X
    """


@lmql.query(model=MODEL)
async def beam():
    """lmql
    beam(n=2)
        "The capital of France is[X]" where len(TOKENS(X)) < 4
        return X
    """


@lmql.query(model=MODEL)
async def to_the_end():
    """lmql
    argmax(max_len=200)
        "{CAPITAL}[X]"
        return X
    """


@lmql.query(model=MODEL)
async def longer_than_it_wants():
    """lmql
    argmax
        "{CAPITAL}[X]" where len(TOKENS(X)) > 11 and len(TOKENS(X)) < 14
        return X
    """


async def failure(endpoint, model="default"):
    """Return the error of a score request to `endpoint`; empty if the request succeeds."""
    try:
        await lmql.model(model, endpoint=endpoint, tokenizer=TOKENIZER).score("A", ["B"])
    except Exception as error:  # noqa: BLE001 any error of the client
        return f"{type(error).__name__}: {error}"
    return ""


async def main():
    queries = (number, choice, stops_at, dense, sampled, beam, to_the_end, longer_than_it_wants)
    with lmql.traced("it") as trace:
        await number()
    answers = await asyncio.gather(*(query() for query in queries))
    results = {query.__name__: answer for query, answer in zip(queries, answers, strict=True)}
    scored = await MODEL.score("The capital of France is", [" Paris", " banana"])
    results["scores"] = [list(scores) for scores in scored.token_scores]
    results["certificate"] = str(lmql.certificate(trace))
    results["other_model"] = await failure(ENDPOINT, "gpt2")
    results["no_key"] = await failure(GUARDED)
    results["wrong_key"] = await failure(f"{GUARDED}/lmtp?api_key=wrong")
    results["key"] = await failure(f"{GUARDED}/lmtp?api_key=right")
    results["password"] = await failure(f"http://me:right@{GUARDED}/lmtp")
    print(json.dumps(results, default=float))


asyncio.run(main())
