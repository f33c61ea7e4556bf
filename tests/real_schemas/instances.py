"""Valid and invalid documents of a schema: its own examples, documents of hypothesis-jsonschema, random documents, and
all these with a change. Kept in the cache, so that two runs judge the same documents."""

import json
import random
import signal
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis_jsonschema import from_schema

from tests.real_schemas.declared_order import DeclaredOrder
from tests.real_schemas.gather import RealSchema
from tests.real_schemas.oracle import NoOracleError, Oracle, without_nullable
from tests.real_schemas.resolver import Resolver
from tests.real_schemas.sampled_documents import NoDocumentError, Sampler, changed

_EDITION = 5  # of the documents: another number makes them anew
_NUM_VALID = 8
_NUM_INVALID = 16
_SECONDS = 4.0
_HYPOTHESIS_SECONDS = 4
_MAX_TEXT = 20_000


@dataclass(slots=True)
class Instances:
    """Texts. `valid` ones write keys in the declared order and name no key of which the schema says nothing; `open`
    are valid ones with such keys; `shuffled` are valid ones with keys in another order."""

    valid: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    shuffled: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    no_oracle: str = ""


def instances(real: RealSchema, cache: Path) -> Instances:
    """Return the documents of a schema, from the cache if they are there."""
    path = cache / "instances" / f"{real.digest}-{_EDITION}.json"
    if path.exists():
        return Instances(**json.loads(path.read_text()))
    made = _made(real)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(made)))
    return made


def _made(real: RealSchema) -> Instances:
    made = Instances()
    rng = random.Random(real.digest)
    resolver = Resolver(real.schema)
    try:
        oracle = Oracle(real.schema, real.dialect)
        order = DeclaredOrder(real.schema, resolver, oracle.validator)
        started = time.monotonic()
        valid: list[Any] = []
        for document in _candidates(real, resolver, rng):
            if len(made.valid) >= _NUM_VALID or time.monotonic() - started > _SECONDS:
                break
            _judge(document, oracle, order, made, rng, valid)
        for _ in range(40 * _NUM_INVALID):
            if len(made.invalid) >= _NUM_INVALID or time.monotonic() - started > 2 * _SECONDS:
                break
            document = changed(rng.choice(valid), rng) if valid else rng.choice([None, 1, "text", [], {}, True])
            _judge(document, oracle, order, made, rng, valid)
    except (NoOracleError, RecursionError) as error:
        made.no_oracle = str(error) or type(error).__name__
    return made


def _judge(
    document: Any, oracle: Oracle, order: DeclaredOrder, made: Instances, rng: random.Random, valid: list[Any]
) -> None:
    if not _is_plain(document):
        return
    verdict = oracle.verdict(document)
    written = order.written(document)
    if len(written.text) > _MAX_TEXT or verdict is None:
        return
    if not verdict:
        where, limit = made.invalid, _NUM_INVALID
    else:
        where, limit = (made.open, 4) if written.has_unnamed else (made.valid, _NUM_VALID)
    if written.text in where or len(where) >= limit:
        return
    where.append(written.text)
    if verdict:
        valid.append(document)
        shuffled = json.dumps(_shuffled(document, rng), ensure_ascii=False, separators=(",", ":"))
        if len(made.shuffled) < _NUM_VALID and not _has_float(document):
            made.shuffled.append(shuffled)


def _candidates(real: RealSchema, resolver: Resolver, rng: random.Random) -> Iterator[Any]:
    yield from _examples(real.schema)
    sampler = Sampler(resolver, rng)
    for _ in range(60):
        try:
            yield sampler.document(real.schema)
        except (NoDocumentError, RecursionError, TypeError, ValueError, KeyError, AttributeError):
            continue
    if real.draft in ("draft-04", "draft-06", "draft-07"):
        yield from _by_hypothesis(without_nullable(real.schema))


def _examples(schema: Any) -> Iterator[Any]:
    if isinstance(schema, dict):
        yield from schema["examples"] if isinstance(schema.get("examples"), list) else []
        yield from (schema[key] for key in ("example", "default") if key in schema)
        if isinstance(schema.get("$ref"), str):
            yield from _examples(
                {k: v for k, v in (Resolver(schema).target(schema["$ref"]) or {}).items() if k != "$ref"}
            )


class _TooSlowError(Exception):
    """hypothesis-jsonschema had its time."""


def _by_hypothesis(schema: Any) -> list[Any]:
    found: list[Any] = []

    def stop(*_: object) -> None:
        raise _TooSlowError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_HYPOTHESIS_SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            strategy = from_schema(schema)

            @settings(
                max_examples=20,
                database=None,
                derandomize=True,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(strategy)
            def collect(document: Any) -> None:
                found.append(document)

            collect()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return found


def _is_plain(value: Any) -> bool:
    """Skip half surrogate pairs, and numbers that binary fractions round or that take hundreds of digits."""
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(inner) for key, inner in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, str):
        return not any("\ud800" <= char <= "\udfff" for char in value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value == 0 or 1e-6 < abs(value) < 1e15
    return value is None or isinstance(value, bool)


def _shuffled(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict):
        return {key: _shuffled(value[key], rng) for key in rng.sample(list(value), len(value))}
    return [_shuffled(item, rng) for item in value] if isinstance(value, list) else value


def _has_float(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_float, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float)
