"""The Python interface, from the docstrings of `aici`, the front door."""

import inspect
from collections.abc import Iterator
from enum import Enum
from typing import Any

from docs.generators.markdown import NOTE, table


def python_page() -> str:
    import aici

    intro = inspect.cleandoc(aici.__doc__ or "")
    groups: dict[str, list[str]] = {"Models": [], "Constraints": [], "Results": [], "Events": [], "Errors": []}
    for name in aici.__all__:
        groups[_group(name, getattr(aici, name))].append(name)
    parts = [NOTE.format(source="the docstrings of `aici`"), "# Python\n\n", _fenced(intro), "\n"]
    for group, names in groups.items():
        parts.append(f"\n## {group}\n")
        for name in names:
            parts += _entry(name, getattr(aici, name))
    return "".join(parts)


def _group(name: str, value: Any) -> str:
    if inspect.isclass(value) and issubclass(value, Exception):
        return "Errors"
    module = getattr(value, "__module__", "")
    if module.endswith("constraints"):
        return "Constraints"
    if module.endswith(("events", "typing")) or name == "Event":
        return "Events"
    return "Results" if module.endswith(("results", "stream")) else "Models"


def _entry(name: str, value: Any) -> Iterator[str]:
    yield f"\n### {name}\n\n"
    if not inspect.isclass(value) and not inspect.isfunction(value):
        yield f"`{value!r}`\n".replace("aici_engine.events.", "")
        return
    is_enum = inspect.isclass(value) and issubclass(value, Enum)
    if not is_enum and (inspect.isfunction(value) or not issubclass(value, Exception)):
        yield f"```text\n{_signature(name, value)}\n```\n\n"
    yield _fenced(inspect.getdoc(value) or "") + "\n"
    if is_enum:
        yield table(("member", "value"), ([f"`{name}.{member.name}`", f"`{member.value!r}`"] for member in value))
        return
    if not inspect.isclass(value) or issubclass(value, Exception):
        return
    for member, function in vars(value).items():
        if member.startswith("_") or not (inspect.isfunction(function) or isinstance(function, property)):
            continue
        shown = f"{name}.{member}" if isinstance(function, property) else _signature(f"{name}.{member}", function)
        text = inspect.cleandoc(function.__doc__ or "")
        yield f"\n```text\n{shown}\n```\n\n{_fenced(text)}\n" if text else ""


def _signature(name: str, value: Any) -> str:
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    # Without annotations, which are long; editors show annotations.
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for key, parameter in found.parameters.items()
        if key != "self"
    ]
    return f"{name}{found.replace(parameters=bare, return_annotation=inspect.Signature.empty)}"


def _fenced(doc: str) -> str:
    """Return a docstring as Markdown, with the examples as text."""
    lines: list[str] = []
    is_example = False
    for line in doc.splitlines():
        starts = line.startswith(">>>")
        if starts and not is_example:
            lines += ["```text"]
            is_example = True
        if is_example and not line.strip():
            lines += ["```"]
            is_example = False
        lines.append(line)
    return "\n".join([*lines, *(["```"] if is_example else [])]) + "\n"
