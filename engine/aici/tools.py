"""Python functions as tools of a chat."""

import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from aici.errors import UsageError, shown_type
from aici.schemas import build, function_schema

ToolLike: TypeAlias = "Callable[..., Any] | Mapping[str, Any]"
"""A function, or a tool as OpenAI's API describes tools."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A tool of a chat. `function` is None for a tool given as a description."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Callable[..., Any] | None = None
    types: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call requested by the model. `arguments` are JSON values, valid under the tool's schema.

    `function` is the Python function of the tool, if the tool was given as a function. `call` calls the function.
    """

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    tool: FunctionTool = field(repr=False)

    @property
    def function(self) -> Callable[..., Any] | None:
        return self.tool.function

    def call(self) -> Any:
        """Call the function with the arguments as instances of the annotated types, and return the result."""
        if self.tool.function is None:
            raise UsageError(f"the tool {self.name} was given without a function", hint="give a function in tools=")
        return self.tool.function(
            **{name: build(self.tool.types.get(name, Any), value) for name, value in self.arguments.items()}
        )

    def message(self, result: object) -> dict[str, Any]:
        """Return the message with the call's result, for the model."""
        return {
            "role": "tool",
            "tool_call_id": self.call_id,
            "content": result if isinstance(result, str) else str(result),
        }


def tools_of(given: Sequence[ToolLike]) -> dict[str, FunctionTool]:
    """Return the tools by name. Raise UsageError for a wrong tool, and for two tools with the same name."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise UsageError(f"tools are a list of functions or dicts, not {shown_type(given)}", hint="tools=[...]")
    tools: dict[str, FunctionTool] = {}
    for each in given:
        tool = _described(each) if isinstance(each, Mapping) else _of_function(each)
        if not _NAME.fullmatch(tool.name):
            raise UsageError(
                f"{tool.name!r} is no name of a tool", hint="a name has letters, digits, _ and -, at most 64"
            )
        if tool.name in tools:
            raise UsageError(f"two tools are called {tool.name}", hint="give each tool a name of its own")
        tools[tool.name] = tool
    return tools


def wire_form(tool: FunctionTool) -> dict[str, Any]:
    """Return a tool as OpenAI's API describes tools."""
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def _described(document: Mapping[str, Any]) -> FunctionTool:
    function = document.get("function", document)
    try:
        name, description = function["name"], function.get("description") or ""
        parameters = function.get("parameters") or {}
        if not (isinstance(name, str) and isinstance(description, str) and isinstance(parameters, Mapping)):
            raise TypeError("name and description are texts, parameters is a dict")
        return FunctionTool(name, description, parameters)
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"a tool is not described: {error!r}", hint="give a function, or a dict with name and parameters"
        ) from error


def _annotated(function: Callable[..., Any]) -> Any:
    """Return where the annotations of a callable's parameters stand."""
    if isinstance(function, functools.partial):
        return _annotated(function.func)
    if isinstance(function, type):
        return function.__init__  # type: ignore[misc]  # only read
    return function if inspect.isroutine(function) else type(function).__call__


def _of_function(function: Callable[..., Any]) -> FunctionTool:
    if not callable(function):
        raise UsageError(f"a tool is a function or a dict, not {type(function).__name__}")
    name = getattr(function, "__name__", type(function).__name__)
    try:
        signature = inspect.signature(function)
    except ValueError as error:
        raise UsageError(f"{name} has no signature that Python knows", hint="write a function around it") from error
    try:
        hints = typing.get_type_hints(_annotated(function), include_extras=True)
    except (NameError, TypeError) as error:
        raise UsageError(f"a type in the signature of {name} is not known: {error}") from error
    parameters: dict[str, tuple[object, bool]] = {}
    for parameter in signature.parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UsageError(f"{name} takes {parameter}, which no tool can have", hint="give every parameter a name")
        parameters[parameter.name] = hints.get(parameter.name, Any), parameter.default is parameter.empty
    types = {parameter: kind for parameter, (kind, _) in parameters.items()}
    return FunctionTool(name, inspect.getdoc(function) or "", function_schema(name, parameters), function, types)
