"""Where log lines go and how they look: standard error, one JSON object a line, or text for people."""

import logging
import sys
import time
from contextvars import ContextVar

import orjson

from aici_engine.server.config import LogFormat

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""Of the request that is being served; each line says it."""

_OURS = ("aici_cli", "aici_engine", "aici_runtime")


def set_up(*, level: str, log_format: LogFormat, process: str) -> None:
    """For a process that is wholly ours. Other people's loggers are heard from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(process) if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    for name in _OURS:
        logging.getLogger(name).setLevel(level)
    # It warns of each write to a client that has left, which is an everyday thing.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    logging.captureWarnings(True)


class JsonFormatter(logging.Formatter):
    """`extra={"fields": {...}}` of a record become members of the object."""

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
        return " ".join(words) + trace
