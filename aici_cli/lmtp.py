"""`aici lmtp`: an LMTP client for the terminal, one prompt per line."""

import contextlib
import json
import re
import sys
import urllib.parse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aici_base.errors import AiciError, UnauthorizedError, UnreachableError, UsageError
from aici_cli.output import on_stdout, print_error, say

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

_PROMPT = ">>>> "
_MAX_FRAME_BYTES = 16 << 20
_PARAMETER = re.compile(r"(?:^|\s+)([a-z_]+)=")


def lmtp(
    server: Annotated[
        str,
        typer.Argument(envvar="AICI_API_BASE", help="HOST:PORT or URL of the server, with an optional key: #key=KEY."),
    ] = "127.0.0.1:4242",
    model: Annotated[str, typer.Option(help="Name of the model on the server.")] = "default",
    json: Annotated[bool, typer.Option("--json", help="Print the items instead of the text, one per line.")] = False,
) -> None:
    """Talk to a model by LMTP. A line is a prompt, then parameters: Hello there temperature=1.2

    The items of tokens go to stderr as they arrive, the whole text goes to stdout. Ctrl-C cancels a stream, Ctrl-D
    exits.
    """
    with _connected(server) as socket:
        chat = _Chat(socket, model, items_to_stdout=json)
        if not sys.stdin.isatty():
            for line in _lines():
                chat.send(line)
            return
        for line in _typed():
            try:
                chat.send(line)
            except UnreachableError:
                raise
            except AiciError as error:
                print_error(error)


class _Chat:
    def __init__(self, socket: "ClientConnection", model: str, *, items_to_stdout: bool) -> None:
        self._socket = socket
        self._model = model
        self._items_to_stdout = items_to_stdout
        self._num_streams = 0
        self._text = ""

    def send(self, line: str) -> None:
        """Send a line, read the stream to the end, and print the text. Raises AiciError if the stream fails."""
        prompt, parameters = parse_line(line)
        if not prompt and "prompt" not in parameters:
            raise UsageError("there is no prompt", hint="write a prompt, then parameters: Hello there temperature=1.2")
        self._num_streams += 1
        head = {"stream_id": self._num_streams, "model": self._model}
        self._say("GENERATE", head | {"prompt": prompt} | parameters)
        self._text = prompt
        try:
            self._read(cancelled=False)
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
            self._say("CANCEL", {"stream_id": self._num_streams})
            self._read(cancelled=True)
        if not self._items_to_stdout:
            print(on_stdout(self._text), flush=True)

    def _read(self, *, cancelled: bool) -> None:
        """Read to the last item of the stream."""
        while True:
            command, _, body = self._receive().partition(" ")
            for item in json.loads(body):
                if item["stream_id"] not in (None, self._num_streams):
                    continue
                if "error" in item and not (cancelled and item["code"] == "cancelled"):
                    raise AiciError(item["error"])
                if command == "MSG":
                    _tell(item)
                    continue
                print(json.dumps(item), file=sys.stdout if self._items_to_stdout else sys.stderr, flush=True)
                self._text += item.get("text", "")
                if "error" in item or item.get("finish_reason"):
                    return

    def _say(self, command: str, message: dict[str, Any]) -> None:
        with _lost():
            self._socket.send(f"{command} {json.dumps(message)}")

    def _receive(self) -> str:
        with _lost():
            return str(self._socket.recv(decode=True))


def parse_line(line: str) -> tuple[str, dict[str, Any]]:
    """Return the prompt and the parameters after the prompt. Values are JSON."""
    for match in _PARAMETER.finditer(line):
        parameters = _parameters(line[match.start() :])
        if parameters is not None:
            return line[: match.start()], parameters
    last = line.split()[-1] if line.split() else ""
    if _PARAMETER.match(last):
        raise UsageError(f"{last}: the value is not JSON", hint='quote a text: "so"')
    return line, {}


def _parameters(text: str) -> dict[str, Any] | None:
    """Parse NAME=JSON pairs. Return None if `text` contains anything else."""
    found: dict[str, Any] = {}
    position = 0
    while match := _PARAMETER.match(text, position):
        try:
            found[match[1]], position = json.JSONDecoder().raw_decode(text, match.end())
        except ValueError:
            return None
    return found if not text[position:].strip() else None


def _typed() -> Iterator[str]:
    """Yield lines from a terminal until Ctrl-D. Ctrl-C starts a new line."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # adds a history to `input`
    while True:
        try:
            line = input(_PROMPT)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
            continue
        if line.strip():
            yield line


def _lines() -> Iterator[str]:
    try:
        for line in sys.stdin:
            if line.strip():
                yield line.rstrip("\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"stdin is not UTF-8: {error.reason} at byte {error.start}") from error


def _tell(event: dict[str, Any]) -> None:
    """Show a message of the server."""
    match event:
        case {"event": "queued", "position": position}:
            say(f"waiting: position {position} in the queue")
        case {"event": "unavailable"}:
            say("the server has no engine at the moment")
        case {"event": "shutdown"}:
            say("the server is stopping")


@contextlib.contextmanager
def _connected(server: str) -> Iterator["ClientConnection"]:
    from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI
    from websockets.sync.client import connect

    from aici.remote.address import NOT_THERE

    try:
        url, headers = address(server)
        shown = urllib.parse.urlsplit(url)._replace(query="").geturl()
        socket = connect(url, additional_headers=headers, max_size=_MAX_FRAME_BYTES, compression=None)
    except InvalidStatus as error:
        status = error.response.status_code
        message = f"{shown} refused the connection: HTTP {status}"
        if status == 401:
            raise UnauthorizedError(message, hint="append a key of the server to the URL: #key=KEY") from error
        raise AiciError(message) from error
    except (InvalidURI, ValueError) as error:
        raise UsageError(f"{server} is no server's address: {error}") from error
    except (OSError, InvalidHandshake) as error:
        raise UnreachableError(f"{shown} cannot be reached: {error}", hint=NOT_THERE) from error
    with socket:
        yield socket


def address(server: str) -> tuple[str, dict[str, str]]:
    """Return the URL of the LMTP WebSocket on a server, and the headers with the key."""
    parts = urllib.parse.urlsplit(server if "://" in server else f"ws://{server}")
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    path = parts.path.rstrip("/")
    if not path.endswith("/lmtp"):
        path = path.removesuffix("/v1") + "/lmtp"
    key = urllib.parse.parse_qs(parts.fragment).get("key")
    headers = {"Authorization": f"Bearer {key[0]}"} if key else {}
    return parts._replace(scheme=scheme, path=path, fragment="").geturl(), headers


@contextlib.contextmanager
def _lost() -> Iterator[None]:
    from websockets.exceptions import ConnectionClosed

    try:
        yield
    except ConnectionClosed as error:
        raise UnreachableError(f"the connection to the server is lost: {error}") from error
