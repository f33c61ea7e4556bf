"""Render a chat template with Jinja, as transformers does: functions `raise_exception` and `strftime_now`, filter
`tojson`, block settings. Templates come with the weights or with a request, so Jinja's sandbox renders.

The sandbox bounds neither time nor memory: already the compilation of `{{ 10**(10**9) }}` computes for hours. The
server renders in a process with limits (`rendering_process.py`).
"""

import json
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NoReturn

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from aici_engine.chat.rendering import Rendered

MAX_TEXT_CHARS: Final = 4 << 20
"""Length of a rendered text; half of the largest body of a request."""


def render(source: str, variables: Mapping[str, Any] | None) -> Rendered:
    """Render a template in this process, as `rendering.Render`."""
    try:
        template = _compiled(source)
    except TemplateError as error:
        return Rendered("unreadable", str(error))
    if variables is None:
        return Rendered("text", "")
    parts, length = [], 0
    try:
        for part in template.generate(**variables):
            parts.append(part)
            length += len(part)
            if length > MAX_TEXT_CHARS:
                return Rendered("costly", f"the text has more than {MAX_TEXT_CHARS:,} characters")
    except TemplateError as error:
        return Rendered("refused", str(error))
    except (TypeError, KeyError, AttributeError, ValueError, RecursionError, ArithmeticError) as error:
        return Rendered("failed", repr(error))
    return Rendered("text", "".join(parts))


@lru_cache(maxsize=8)
def _compiled(source: str) -> Template:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(source)


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)
