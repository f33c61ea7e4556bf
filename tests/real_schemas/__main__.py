"""Real schemas from packages of PyPI and npm: how many pass, are declined, or go wrong, here and in other engines.

    python -m tests.real_schemas [--engines ours,ours-open,llguidance,xgrammar] [--only NAME] [--json FILE] [--native]

The packages (packages.toml) are downloaded into a cache. A schema passes if the engine accepts all valid documents and
no invalid document; documents are valid or invalid if two validators agree. Other engines are asked about documents
with keys in the declared order. XGrammar: pip install --no-deps apache-tvm-ffi xgrammar==0.2.8
"""

import argparse
import importlib.util
import itertools
import json
import re
import sys
import textwrap
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.real_schemas.engines import ENGINES
from tests.real_schemas.gather import RealSchema, gathered
from tests.real_schemas.installed import installed_models
from tests.real_schemas.instances import Instances, instances
from tests.real_schemas.isolated import Isolated
from tests.real_schemas.registry import packages
from tests.support.native_tool import built_tool


@dataclass(frozen=True, slots=True)
class Outcome:
    """`kind`: pass, declined or wrong. `why`: the cause, or the text that went wrong."""

    schema: str
    engine: str
    kind: str
    why: str = ""

    @property
    def cause(self) -> str:
        """The cause without names and numbers, to be counted."""
        if self.kind == "wrong":
            return self.why.partition(": ")[0]
        text = re.sub(r"at position \d+: ", "", self.why.splitlines()[0] if self.why else "")
        text = re.sub(r"the format .* is not known", "the format … is not known", text)
        text = re.sub(r"^.*: unknown keyword", "unknown keyword", text)
        return textwrap.shorten(re.sub(r"\d+", "N", re.sub(r"\"[^\"]*\"|'[^']*'|`[^`]*`", "…", text)), 110)


def judged(engine: Isolated, real: RealSchema, made: Instances) -> Outcome:
    is_open = engine.name == "ours-open"
    valid = [*made.valid, *(made.open if engine.name != "ours" else []), *(made.shuffled if is_open else [])]
    answer = engine.ask(real.schema, [*valid, *made.invalid])
    if "declined" in answer:
        return Outcome(real.name, engine.name, "declined", answer["declined"])
    accepted = dict(zip([*valid, *made.invalid], answer["accepted"], strict=True))
    for text in valid:
        if not accepted[text]:
            return Outcome(real.name, engine.name, "wrong", f"refuses a valid document: {text}")
    for text in made.invalid:
        if accepted[text]:
            return Outcome(real.name, engine.name, "wrong", f"accepts an invalid document: {text}")
    return Outcome(real.name, engine.name, "pass")


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.real_schemas")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--only", default="", help="schemas whose name contains this")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "aici" / "real-schemas")
    parser.add_argument("--limit-s", type=float, default=30.0, help="CPU time for one engine on one schema")
    parser.add_argument("--native", action="store_true", help="our guest as a native program: faster")
    parser.add_argument("--json", type=Path, help="write every outcome to this file")
    arguments = parser.parse_args()
    names = [name for name in arguments.engines.split(",") if _is_there(name)]
    schemas = list(_all_schemas(arguments.cache, arguments.only))
    program = built_tool("json_schema") if arguments.native else None
    engines = [Isolated(name, limit_s=arguments.limit_s, program=program) for name in names]
    outcomes: list[Outcome] = []
    skipped: Counter[str] = Counter()
    for number, real in enumerate(schemas):
        made = instances(real, arguments.cache)
        if made.no_oracle:
            skipped["malformed, or not read by the validators"] += 1
            continue
        if not (made.valid or made.open):
            skipped["no valid document found"] += 1
            continue
        outcomes += [judged(engine, real, made) for engine in engines]
        if number % 50 == 0:
            print(f"{number} of {len(schemas)}", file=sys.stderr)
    for engine in engines:
        engine.close()
    _print(outcomes, names, Counter(real.kind for real in schemas), skipped)
    if arguments.json:
        rows = [{"schema": o.schema, "engine": o.engine, "kind": o.kind, "why": o.why} for o in outcomes]
        arguments.json.write_text(json.dumps(rows, indent=1, ensure_ascii=False))


def _is_there(engine: str) -> bool:
    if engine in ("llguidance", "xgrammar") and importlib.util.find_spec(engine) is None:
        print(f"{engine} is not installed: left out", file=sys.stderr)
        return False
    return True


def _all_schemas(cache: Path, only: str) -> list[RealSchema]:
    """Return all schemas, each once, although several packages may hold it."""
    found: dict[str, RealSchema] = {}
    gatherings = [gathered(package, cache) for package in packages()]
    for real in itertools.chain(*gatherings, installed_models()):
        if only in real.name:
            found.setdefault(real.digest, real)
    return list(found.values())


def _print(outcomes: list[Outcome], engines: list[str], kinds: Counter[str], skipped: Counter[str]) -> None:
    print("schemas:", ", ".join(f"{num} {kind}" for kind, num in kinds.most_common()))
    print("not judged:", ", ".join(f"{num} {why}" for why, num in skipped.most_common()) or "none")
    print(f"\n| {'engine':12} | schemas | pass | declined | wrong | passing |\n|---|---|---|---|---|---|")
    for engine in engines:
        num: Counter[str] = Counter(one.kind for one in outcomes if one.engine == engine)
        share = num["pass"] / max(1, num.total())
        print(f"| {engine:12} | {num.total()} | {num['pass']} | {num['declined']} | {num['wrong']} | {share:.1%} |")
    for engine in engines:
        causes = Counter((o.kind, o.cause) for o in outcomes if o.engine == engine and o.kind != "pass")
        print(f"\n{engine}")
        for (kind, cause), times in causes.most_common(25):
            example: Any = next(o.schema for o in outcomes if (o.engine, o.kind, o.cause) == (engine, kind, cause))
            print(f"{times:5} {kind:8} {cause}   ({example})")


if __name__ == "__main__":
    _main()
