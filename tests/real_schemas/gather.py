"""Schemas found in the JSON files of packages: documents that are schemas, components of OpenAPI documents, and
parameters of tools."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
from jsonschema.protocols import Validator

from tests.real_schemas.registry import Package, unpacked

DRAFTS: dict[str, type[Validator]] = {
    "draft-03": jsonschema.Draft3Validator,
    "draft-04": jsonschema.Draft4Validator,
    "draft-06": jsonschema.Draft6Validator,
    "draft-07": jsonschema.Draft7Validator,
    "2019-09": jsonschema.Draft201909Validator,
    "2020-12": jsonschema.Draft202012Validator,
}
_NEWER = (
    "$defs",
    "$anchor",
    "$dynamicRef",
    "dependentRequired",
    "dependentSchemas",
    "prefixItems",
    "unevaluatedProperties",
)
_MAX_SCHEMA_BYTES = 1 << 19  # larger ones keep the validators busy for minutes
_EDITION = 2  # of what is kept of a package in the cache: another number makes it anew


@dataclass(frozen=True, slots=True)
class RealSchema:
    """`name`: package, file and place. `draft`: of the document, or the draft that its keywords suggest."""

    name: str
    kind: str
    schema: Any
    draft: str

    @property
    def dialect(self) -> type[Validator]:
        return DRAFTS[self.draft]

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.schema).encode()).hexdigest()[:16]


def gathered(package: Package, cache: Path) -> list[RealSchema]:
    """Return the different schemas of a package: at most `package.limit`, spread evenly over the files."""
    kept = cache / "gathered" / f"{package.registry}-{package.name.replace('/', '+')}-{package.version}-{_EDITION}.json"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        rows = [[one.name, one.kind, one.schema, one.draft] for one in _found(package, cache)]
        kept.write_text(json.dumps(rows))
    return [RealSchema(*row) for row in json.loads(kept.read_text())]


def _found(package: Package, cache: Path) -> list[RealSchema]:
    folder = unpacked(package, cache)
    found: dict[str, RealSchema] = {}
    for path in sorted(folder.rglob("*.json")):
        place = str(path.relative_to(folder))
        if any(part in place for part in package.skip):
            continue
        try:
            document = json.loads(path.read_text("utf-8-sig"))
        except (ValueError, RecursionError):
            continue
        for one in _schemas(f"{package.registry}:{package.name}:{place}", document):
            if len(json.dumps(one.schema)) <= _MAX_SCHEMA_BYTES and _is_alone(one.schema):
                found.setdefault(one.digest, one)
    schemas = list(found.values())
    step = max(1, -(-len(schemas) // package.limit))
    return schemas[::step]


def _schemas(name: str, document: Any) -> Iterator[RealSchema]:
    if not isinstance(document, dict):
        return
    if "openapi" in document or "swagger" in document:
        yield from _components(name, document)
        return
    tools = list(_tools(document))
    if tools:
        for tool, parameters in tools:
            yield RealSchema(f"{name}#{tool}", "tool", parameters, draft(parameters))
        return
    if _is_schema(document):
        yield RealSchema(name, "schema", document, draft(document))


def _is_schema(document: dict[str, Any]) -> bool:
    declared = document.get("$schema")
    if isinstance(declared, str) and "json-schema.org" in declared:
        return True
    named = document.get("properties")
    if not (isinstance(named, dict) and named and all(isinstance(one, dict | bool) for one in named.values())):
        return False
    return document.get("type") == "object" or bool(document.keys() & {"additionalProperties", "definitions", "$defs"})


def draft(schema: Any) -> str:
    declared = schema.get("$schema", "") if isinstance(schema, dict) else ""
    for part in DRAFTS:
        if isinstance(declared, str) and part in declared:
            return part
    return "2020-12" if any(f'"{keyword}"' in json.dumps(schema) for keyword in _NEWER) else "draft-07"


def _components(name: str, document: dict[str, Any]) -> Iterator[RealSchema]:
    """Yield each component, with the components to which it refers."""
    is_old = "swagger" in document
    holder = document if is_old else document.get("components", {})
    key = "definitions" if is_old else "schemas"
    components = holder.get(key)
    if not isinstance(components, dict):
        return
    prefix = "#/definitions/" if is_old else "#/components/schemas/"
    version = "2020-12" if str(document.get("openapi", "")).startswith("3.1") else "draft-04"
    for component in components:
        needed: dict[str, Any] = {}
        todo = [component]
        while todo:
            one = todo.pop()
            if one in needed or one not in components:
                continue
            needed[one] = components[one]
            todo += [ref.removeprefix(prefix).replace("~1", "/") for ref in _refs(components[one])]
        schemas = {other: needed[other] for other in components if other in needed}
        held = {key: schemas} if is_old else {"components": {key: schemas}}
        reference = prefix + component.replace("~", "~0").replace("/", "~1")
        yield RealSchema(f"{name}#{component}", "openapi", {"$ref": reference} | held, version)


def _tools(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and parameters of each tool: MCP's, Anthropic's or OpenAI's spelling."""
    if isinstance(node, list):
        for inner in node:
            yield from _tools(inner)
    elif isinstance(node, dict):
        for key in ("inputSchema", "input_schema", "parameters"):
            parameters = node.get(key)
            if isinstance(node.get("name"), str) and isinstance(parameters, dict) and "type" in parameters:
                yield node["name"], parameters
                return
        for inner in node.values():
            yield from _tools(inner)


def _refs(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for inner in node:
            yield from _refs(inner)
    elif isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for inner in node.values():
            yield from _refs(inner)


def _is_alone(schema: Any) -> bool:
    """False if the schema refers to another document: no engine could honour the reference."""
    ids = {schema.get(key, "").rstrip("#") for key in ("$id", "id") if isinstance(schema.get(key, ""), str)}
    return all(
        ref.startswith("#") or "json-schema.org" in ref or ref.partition("#")[0] in ids - {""} for ref in _refs(schema)
    )
