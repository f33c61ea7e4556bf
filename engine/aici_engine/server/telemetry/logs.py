"""Logging set-up: lines go to standard error, as text for people or as one JSON object per line."""

import logging
import sys
import threading
import time
from contextvars import ContextVar

import orjson

from aici_base.plain_text import without_controls
from aici_engine.server.config import LogFormat

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request being served. Every log line contains it."""

_LEFT_OUT = "%d more lines like this one were left out: %s"
_OURS = ("aici_cli", "aici_engine", "aici_runtime")


def set_up(*, level: str, log_format: LogFormat, process: str) -> None:
    """Configure logging of a process that runs nothing but aici. Loggers of other libraries log from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(process) if log_format == "json" else TextFormatter())
    handler.addFilter(FewLines(handler))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    for name in _OURS:
        logging.getLogger(name).setLevel(level)
    # asyncio warns about every write to a client that has left. Clients leave all the time.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    logging.captureWarnings(True)


class FewLines(logging.Filter):
    """Lets `most` warnings and errors of one cause pass in a second; one line tells how many more there were.

    The cause is the line of code. Lines of lower levels pass: the access log has a line for every request.
    """

    def __init__(self, handler: logging.Handler, *, most: int = 10, period_s: float = 1.0) -> None:
        super().__init__()
        self._handler = handler
        self._most = most
        self._period_s = period_s
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int], int] = {}
        self._last_shown: dict[tuple[str, int], str] = {}
        self._timer: threading.Timer | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or record.msg == _LEFT_OUT:
            return True
        cause = (record.pathname, record.lineno)
        with self._lock:
            number = self._seen[cause] = self._seen.get(cause, 0) + 1
            if number == self._most:
                self._last_shown[cause] = record.getMessage().partition("\n")[0]
            if self._timer is None:
                self._timer = threading.Timer(self._period_s, self.tell_all)
                self._timer.daemon = True
                self._timer.start()
        return number <= self._most

    def tell_all(self) -> None:
        """Write what was left out, and begin the next second."""
        with self._lock:
            seen, self._seen = self._seen, {}
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        for cause, number in seen.items():
            if number > self._most:
                left_out = (number - self._most, self._last_shown.pop(cause))
                self._handler.handle(logging.LogRecord(__name__, logging.WARNING, *cause, _LEFT_OUT, left_out, None))


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
