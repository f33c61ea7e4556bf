"""Schemas that pydantic writes of the models of installed packages."""

import importlib
import pkgutil
from collections.abc import Iterator

from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from tests.real_schemas.gather import RealSchema

_PACKAGES = ("openai.types", "anthropic.types")
_LIMIT = 40


def installed_models() -> Iterator[RealSchema]:
    """Yield schemas of at most `_LIMIT` models of each package, spread evenly."""
    for package in _PACKAGES:
        models: dict[str, type[BaseModel]] = {}
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and issubclass(value, BaseModel) and value.__module__ == module.name:
                    models[f"{module.name}.{value.__name__}"] = value
        names = sorted(models)
        for name in names[:: max(1, -(-len(names) // _LIMIT))]:
            try:
                schema = models[name].model_json_schema()
            except PydanticUserError:
                continue
            yield RealSchema(f"installed:{name}", "pydantic", schema, "2020-12")
