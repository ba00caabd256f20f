"""Connection settings of one server: TLS, proxy, URL, headers, and errors of the connection."""

import socket
import ssl
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote, urlsplit

import httpcore

from torchx.errors import BackendUnavailable
from torchx.version import __version__

from .calls import JSON, Answer, Call
from .config import Config, Pem
from .credentials import Credentials
from .errors import AnswerLost, ConfigError, NotSent, Untrusted
from .proxies import proxy_of
from .tls import tls_context

CONNECT_S = 10.0
_GZIP = 16 + zlib.MAX_WBITS
_UNSENT = (
    httpcore.ConnectError,
    httpcore.ConnectTimeout,
    httpcore.PoolTimeout,
    httpcore.ProxyError,
)
_LOST = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError)

Headers = list[tuple[str, str]]
Certificate = tuple[Pem, Pem]


class Server:
    """The server of a context and the credentials for it."""

    def __init__(self, config: Config, credentials: Credentials | None = None) -> None:
        url = urlsplit(config.cluster.server)
        if url.scheme.lower() not in ("http", "https") or not url.hostname:
            msg = f"`server` of cluster `{config.cluster.name}` must be an http or https URL"
            raise ConfigError(f"{msg}: {config.cluster.server}")
        self.config = config
        self.credentials = credentials or Credentials(config)
        self._origin = (url.scheme.lower().encode(), url.hostname.encode("idna"), url.port)
        self._host = url.netloc.rpartition("@")[2]
        self._prefix = url.path.rstrip("/")
        self._context: tuple[Certificate | None, ssl.SSLContext | None] | None = None

    def pool_options(self, certificate: Certificate | None, max_connections: int) -> dict[str, Any]:
        """Returns arguments for an httpcore connection pool with one client certificate."""
        known = self._context
        if known is None or known[0] != certificate:
            # authorities are loaded once, not for each of a thousand streams
            known = self._context = (certificate, tls_context(self.config.cluster, certificate))
        return {
            "ssl_context": known[1],
            "proxy": _proxy(proxy_of(self.config.cluster)),
            "max_connections": max_connections,
            "keepalive_expiry": 60.0,
            "socket_options": _keep_alive(),
        }

    def url(self, call: Call) -> httpcore.URL:
        """Returns the URL of the call."""
        scheme, host, port = self._origin
        target = f"{self._prefix}{call.target}".encode()
        return httpcore.URL(scheme=scheme, host=host, port=port, target=target)

    def headers(self, call: Call, credentials: Headers, compress: bool = True) -> Headers:
        """Returns all headers of the call; without ``compress``, the response is not buffered."""
        headers = [
            ("Host", self._host),
            ("User-Agent", f"torchx/{__version__}"),
            ("Accept", JSON),
            *credentials,
        ]
        if compress and self.config.cluster.compress:
            headers.append(("Accept-Encoding", "gzip"))
        if call.body is not None:
            headers.append(("Content-Type", call.content_type))
            headers.append(("Content-Length", str(len(call.body))))
        return headers

    def extensions(self, read_s: float | None) -> dict[str, Any]:
        """Returns timeouts, and the name expected in the certificate if it is not the host's."""
        timeout = {"connect": CONNECT_S, "pool": 60.0, "write": 30.0, "read": read_s}
        name = self.config.cluster.tls_server_name
        return {"timeout": timeout, **({"sni_hostname": name} if name else {})}

    @contextmanager
    def translate_errors(self, call: Call) -> Iterator[None]:
        """Translates errors of the connection."""
        try:
            yield
        except (*_UNSENT, *_LOST, httpcore.UnsupportedProtocol) as err:
            raise self._translated(err, call) from None

    def _translated(self, err: Exception, call: Call) -> BackendUnavailable:
        reason = _reason(err)
        where = f"the Kubernetes API server at {self.config.cluster.server}"
        if advice := _certificate_advice(reason):
            return Untrusted(f"{where} cannot be trusted: {reason}; {advice}")
        if isinstance(err, _UNSENT):
            return NotSent(f"{where} cannot be reached: {reason}")
        return AnswerLost(f"{where} did not answer, asked to {call}: {reason}")


def answer(code: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> Answer:
    """Builds the response from httpcore's data, decompressed unless truncated."""
    named = decoded(headers)
    if named.get("content-encoding") == "gzip":
        with suppress(zlib.error):
            body = zlib.decompress(body, _GZIP)
    return Answer(code, named, body)


def decoded(headers: Sequence[tuple[bytes, bytes]]) -> Mapping[str, str]:
    """Returns headers by lower-case name."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}


def _proxy(url: str) -> httpcore.Proxy | None:
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https", "socks5", "socks5h") or not parts.hostname:
        raise ConfigError(f"`{url}` is no proxy: it must be an http, https or socks5 URL")
    if parts.scheme.startswith("socks") and find_spec("socksio") is None:
        raise ConfigError(f"the proxy `{url}` needs the Python package: pip install socksio")
    auth = None
    if parts.username:
        auth = (unquote(parts.username), unquote(parts.password or ""))
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 1080)
    where = httpcore.URL(scheme=parts.scheme, host=parts.hostname, port=port, target="/")
    return httpcore.Proxy(where, auth=auth)


def _keep_alive() -> list[tuple[int, int, int]]:
    """Returns TCP keep-alive options, because a watch is silent for long."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def _reason(err: BaseException) -> str:
    """Returns the message of the system or OpenSSL from a chain of exceptions."""
    inner: BaseException | None = err
    for _ in range(6):
        if isinstance(inner, ssl.SSLCertVerificationError):
            return inner.verify_message
        if isinstance(inner, ssl.SSLError) and inner.reason:
            return inner.reason.replace("_", " ").lower()
        if isinstance(inner, OSError) and inner.strerror:
            return inner.strerror
        if inner is None:
            break
        inner = inner.__cause__ or inner.__context__
    if isinstance(err, httpcore.TimeoutException):
        return "it took too long"
    return " ".join(str(err).split()) or type(err).__name__


def _certificate_advice(reason: str) -> str:
    if "alert certificate expired" in reason or "alert expired" in reason:
        return "the client certificate of the kubeconfig is expired: log in again"
    if "has expired" in reason:
        return "the server's certificate is expired: ask who runs the cluster to renew it"
    if "self-signed" in reason or "local issuer" in reason or "unknown ca" in reason:
        return "check `certificate-authority` of the cluster in the kubeconfig"
    if "mismatch" in reason or "not valid for" in reason or "match" in reason:
        return "check `server` or `tls-server-name` of the cluster in the kubeconfig"
    return ""
