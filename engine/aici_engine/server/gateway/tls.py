"""TLS of the server: a certificate that is read again when its files change, and clients' certificates."""

import logging
import ssl
import stat
from pathlib import Path

from aici_base.errors import UsageError
from aici_engine.server.config import TlsFiles

_log = logging.getLogger(__name__)


class ServerTls:
    """The server's side of TLS. `context` is for the listener.

    Every handshake looks whether the files are others than before: a renewed certificate needs no signal and no
    restart. Connections that are open keep theirs. Files that cannot be used change nothing, and the log says why.
    """

    def __init__(self, files: TlsFiles) -> None:
        """Raises UsageError for files that cannot be used."""
        self._files = files
        self._seen = self._stamps()
        self._current = self.context = self._read()
        self.context.sni_callback = self._choose
        if files.key.stat().st_mode & stat.S_IROTH:
            _log.warning("every user of this machine can read %s: chmod 600 it", files.key)

    def reload(self) -> None:
        """Read the files again, for new connections."""
        self._seen = self._stamps()
        try:
            self._current = self._read()
        except UsageError as error:
            _log.error("the certificate stays as it was: %s", error)
        else:
            _log.info("new connections get the certificate of %s, read again", self._files.certificate)

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Is called in every handshake, whether the client names a host or not."""
        if self._stamps() != self._seen:
            self.reload()
        connection.context = self._current

    def _read(self) -> ssl.SSLContext:
        files = self._files
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(files.certificate, files.key, password=_no_password)
        except ssl.SSLError as error:
            reason = (error.reason or str(error)).lower().replace("_", " ")
            raise UsageError(
                f"cannot use the certificate {files.certificate} with the key {files.key}: {reason}",
                hint="both are PEM files: the certificate first, then those that sign it; and its own key",
            ) from error
        except OSError as error:
            raise UsageError(f"cannot read {files.certificate} and {files.key}: {error.strerror}") from error
        if files.client_ca is not None:
            try:
                context.load_verify_locations(files.client_ca)
            except (OSError, ssl.SSLError) as error:
                raise UsageError(f"cannot read certificates from {files.client_ca}: {error}") from error
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in self._files if path is not None]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _no_password() -> str:
    raise UsageError("the key of the certificate is encrypted", hint="decrypt it: openssl pkey -in KEY -out KEY2")
