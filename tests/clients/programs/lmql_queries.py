"""A program of a user of LMQL: queries over LMTP."""

import asyncio
import os
import sys

import lmql
from features import feature

ENDPOINT = sys.argv[1].removeprefix("http://")
MODEL = lmql.model("default", endpoint=ENDPOINT, tokenizer=os.environ["AICI_TOKENIZER"])


@lmql.query(model=MODEL)
async def text():
    """lmql
    argmax
        "The capital of France is[X]" where len(TOKENS(X)) < 6
        return X
    """


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
async def beam():
    """lmql
    beam(n=24)
        "The capital of France is[X]" where len(TOKENS(X)) < 3
        return X
    """


@feature("chat")
def _() -> bool:
    return bool(asyncio.run(text()))


@feature("constraints")
def _() -> bool:
    chosen = asyncio.run(choice())
    return int(asyncio.run(number())) >= 0 and str(chosen[0] if isinstance(chosen, list) else chosen).strip() != ""


@feature("logprobs", "score")
def _() -> bool:
    return len(asyncio.run(MODEL.score("The capital of France is", [" Paris", " banana"])).token_scores) == 2


@feature("logprobs", "beam(n=24)")
def _() -> bool:
    return bool(asyncio.run(beam()))


@feature("errors")
def _() -> bool:
    try:
        other = lmql.model("nosuch", endpoint=ENDPOINT, tokenizer=os.environ["AICI_TOKENIZER"])
        asyncio.run(other.score("A", ["B"]))
    except Exception as error:
        return "nosuch" in str(error)
    return False
