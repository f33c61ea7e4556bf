"""Logging set-up: lines go to standard error, as text for people or as one JSON object per line."""

import logging
import sys
import time
from contextvars import ContextVar

import orjson

from aici_base.plain_text import without_controls
from aici_engine.server.config import LogFormat

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request being served. Every log line contains it."""

_OURS = ("aici_cli", "aici_engine", "aici_runtime")


def set_up(*, level: str, log_format: LogFormat, process: str) -> None:
    """Configure logging of a process that runs nothing but aici. Loggers of other libraries log from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(process) if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    for name in _OURS:
        logging.getLogger(name).setLevel(level)
    # asyncio warns about every write to a client that has left. Clients leave all the time.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    logging.captureWarnings(True)


class JsonFormatter(logging.Formatter):
    """One JSON object per line. `extra={"fields": {...}}` of a log call become members of the object."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z",
            "level": record.levelname,
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if this := request_id.get():
            line["request_id"] = this
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        level = "" if record.levelno == logging.INFO else f"{record.levelname} "
        fields = [f"{name}={value}" for name, value in getattr(record, "fields", {}).items()]
        if this := request_id.get():
            fields.append(f"request_id={this}")
        words = [time.strftime("%H:%M:%S", time.localtime(record.created)), f"{level}{record.getMessage()}", *fields]
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return without_controls(" ".join(words)) + without_controls(trace, keep="\n")
