"""HTTP to one registry: log-in, redirects and retries.

Connections, TLS, proxies, sending, reading and the length of pauses are urllib3's. Not urllib3's:

* Redirects: ``PoolManager`` drops the log-in where a registry behind a proxy names itself by the
  other scheme, follows from TLS to plain HTTP, and has one set of certificates for all hosts.
* The loop of retries: ``Retry`` sends a request again from its beginning. For a layer of 1 GB that
  breaks after 900 MB, ``Upload`` sends only the last 100 MB. ``Retry`` does not notice a break
  while a body is read in parts, and it obeys any ``Retry-After``, or cuts it short and retries too
  soon, where we report the error at once.
* The log-in, which urllib3 does not support.
"""

import contextlib
import functools
import json
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import responses
from typing import Any, TypeVar

from urllib3 import BaseHTTPResponse, HTTPHeaderDict, Retry, Timeout
from urllib3.exceptions import (
    HTTPError,
    InvalidHeader,
    LocationValueError,
    MaxRetryError,
    NewConnectionError,
    ProxyError,
)

from torchx._startup.lazy_logger import get_logger
from torchx.errors import (
    BackendUnavailable,
    InvalidInput,
    RefusedByRegistry,
    TorchXError,
    UnexpectedReply,
)
from torchx.version import __version__
from torchx.workspace._registry._auth import (
    Credentials,
    find_credentials,
    parse_challenges,
    token_request,
)
from torchx.workspace._registry._connection import is_insecure, open_pool, untrusted
from torchx.workspace._registry._request import BLOCK, Body, Interrupted, Request

RETRIES = Retry(6, backoff_factor=0.25, backoff_jitter=0.25).increment()
"""Pauses of 0.5, 1, 2, 4 and 8 s; counted up once: urllib3 makes no first pause.
"""

_TIMEOUT_S = 60
_STORE_TIMEOUT_S = 600  # a registry may check and move gigabytes before it answers a PUT
_LONGEST_WAIT_S = 120
"""Longest pause in seconds; a registry that requests more is not waited for."""
_MAX_REDIRECTS = 5
_MAX_ERROR_BODY = 1 << 16
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})

T = TypeVar("T")

logger = get_logger(__name__)


@dataclass(frozen=True)
class Reply:
    """A response whose body was read."""

    status: int
    headers: HTTPHeaderDict
    url: str
    data: bytes


class Http:
    """Sends requests to one registry from any number of threads.

    Args:
        host: as users name the registry.
        api_host: host and port that serve its API.
        scopes: the rights to ask for.
        retries: the number of retries, and the pauses.
        hurry_s: each request is sent once, and is not waited for longer than that.
    """

    def __init__(
        self,
        host: str,
        api_host: str,
        scopes: Sequence[str],
        retries: Retry | None = None,
        hurry_s: float | None = None,
    ) -> None:
        self.host = host
        self.retries = RETRIES if retries is None else retries
        self._hurry_s = hurry_s
        if hurry_s is not None:
            self.retries = Retry(1)  # one is for servers that turn out to speak HTTPS
        self._api_host = api_host
        self._scopes = scopes
        self._scheme = "http" if is_insecure(host) else "https"
        self._credentials: Credentials | None = None
        self._authorization: str | None = None
        self._login = threading.Lock()
        self._aborted = threading.Event()
        self._connections: list[Any] = []
        self._pool = functools.cache(functools.partial(open_pool, self._connections))

    def close(self) -> None:
        """Closes all connections."""
        for connection in self._connections:
            connection.close()

    def abort(self) -> None:
        """Aborts requests of other threads; from now on they can only clean up."""
        self._aborted.set()
        for connection in [*self._connections]:
            with contextlib.suppress(OSError, AttributeError):  # closed, or not open yet
                connection.sock.shutdown(socket.SHUT_RDWR)

    def absolute(self, url: str, base: str = "") -> str:
        """Returns the URL for a path of the registry, or for a ``Location`` from it.

        Raises:
            UnexpectedReply: if that is not a URL.
        """
        try:
            full = urllib.parse.urljoin(base or f"{self._scheme}://{self._api_host}", url)
            parts = urllib.parse.urlsplit(full)
            known = parts.hostname and parts.scheme in ("http", "https") and parts.port != 0
        except ValueError:  # brackets without an address, a port that is not a number
            known = False
        if not known or not full.isascii():
            raise UnexpectedReply(f"registry {self.host}", f"the address {url}, which is no URL")
        if parts.netloc == self._api_host:  # a proxy in front may hide which scheme is right
            full = urllib.parse.urlunsplit(parts._replace(scheme=self._scheme))
        return full

    def request(self, request: Request, most_bytes: int = 1 << 25) -> Reply:
        """Sends an idempotent request, with retries, and reads the response.

        Raises:
            InvalidInput: if the registry refuses.
            BackendUnavailable: if it cannot be reached, or stays busy.
        """
        return self.with_retries(request.doing, lambda: self.request_once(request, most_bytes))

    def with_retries(self, doing: str, call: Callable[[], T]) -> T:
        """Returns the result of a call, retrying it after ``Interrupted``."""
        retries = self.retries
        while True:
            try:
                return call()
            except Interrupted as err:
                retries = self.pause(retries, doing, err)

    def pause(self, retries: Retry, doing: str, why: Interrupted) -> Retry:
        """Waits before the next try, and returns the remaining retries.

        Raises:
            BackendUnavailable: if none are left.
        """
        asked_s = why.asked_s or 0
        try:
            left = retries.increment() if asked_s <= _LONGEST_WAIT_S else None
        except MaxRetryError:
            left = None
        if left is None:
            raise BackendUnavailable(f"registry `{self.host}`: cannot {doing}: {why}") from None
        logger.info("registry `%s`: %s: %s; trying again", self.host, doing, why)
        self._aborted.wait(max(asked_s, left.get_backoff_time()))
        return left

    def request_once(self, request: Request, most_bytes: int = 1 << 25) -> Reply:
        """Sends a request once, and reads the response.

        Raises:
            Interrupted: if a retry may succeed.
        """
        with self.stream(request) as response:
            data = b""
            while block := response.read(BLOCK):
                data += block
                if len(data) > most_bytes:
                    what = f"{request.method} {request.url}"
                    raise UnexpectedReply(what, "more than was expected")
            return Reply(response.status, response.headers, response.url or "", data)

    @contextlib.contextmanager
    def stream(self, request: Request) -> Iterator[BaseHTTPResponse]:
        """Sends a request once and yields the response for reading.

        Raises:
            Interrupted: if a retry may succeed, also while it is read.
            BackendUnavailable: if the host cannot be reached.
        """
        response = None
        try:
            response = self.with_auth(request)
            if response.status not in request.expected:
                raise self._refused(request, _read_error(response))
            yield response
        except HTTPError as err:
            raise self._failure(err) from None
        finally:
            if response is not None:
                _release(response)

    def with_auth(self, request: Request) -> BaseHTTPResponse:
        """Sends a request, and again with a log-in if the registry requires one."""
        if 401 in request.expected:
            return self.follow_redirects(request, None)
        used = self._authorization
        response = self.follow_redirects(request, used)
        if response.status != 401:
            return response
        refusal = _read_error(response)
        with self._login:  # one thread for all
            if self._authorization == used:
                self._authorization = self._log_in(request, refusal)
        return self.follow_redirects(request, self._authorization)

    def follow_redirects(self, request: Request, authorization: str | None) -> BaseHTTPResponse:
        """Sends a request and follows redirects; only the registry gets the log-in."""
        url = self.absolute(request.url)
        for _ in range(_MAX_REDIRECTS + 1):
            headers = dict(request.headers)
            if authorization and urllib.parse.urlsplit(url).netloc == self._api_host:
                headers["Authorization"] = authorization
            response = self.send_once(request.method, url, headers, request.body)
            location = response.get_redirect_location()
            if not location:
                return response
            _read_error(response)
            target = self.absolute(location, url)
            if url.startswith("https:") and not target.startswith("https:"):
                msg = f"registry `{self.host}` redirects to `{target:.200}`, which is not encrypted"
                raise InvalidInput(msg)
            url = target
        raise UnexpectedReply(f"{request.method} {request.url}", "too many redirects")

    def send_once(
        self, method: str, url: str, headers: Mapping[str, str], body: Body | bytes | None
    ) -> BaseHTTPResponse:
        """Sends a request to one URL, without redirects."""
        if self._aborted.is_set() and method != "DELETE":  # the request that cleans up
            raise BackendUnavailable(f"registry `{self.host}`: stopped")
        parts = urllib.parse.urlsplit(url)
        sent = {"User-Agent": f"torchx/{__version__}", "Accept-Encoding": "identity", **headers}
        if isinstance(body, Body):
            sent["Content-Length"] = str(body.length)
        response = self._pool(parts.scheme, parts.netloc).urlopen(
            method,
            urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, "")),
            body=body,
            headers=sent,
            retries=False,
            redirect=False,
            timeout=self._timeout(method),
            preload_content=False,
            decode_content=False,
        )
        response.url = url
        return response

    def _timeout(self, method: str) -> Timeout:
        if self._hurry_s is not None:
            return Timeout(self._hurry_s, self._hurry_s)
        return Timeout(_TIMEOUT_S, _STORE_TIMEOUT_S if method == "PUT" else _TIMEOUT_S)

    def _failure(self, err: HTTPError) -> Exception:
        """Translates an error of urllib3."""
        cause = _innermost(err)
        if isinstance(cause, TorchXError):  # an error of the body to send
            return cause
        if isinstance(cause, ssl.SSLCertVerificationError):
            return BackendUnavailable(untrusted(self.host, cause))
        if isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_AGAIN:
            return Interrupted("its name cannot be resolved now")
        final = isinstance(err, (NewConnectionError, ProxyError, LocationValueError))
        if not final or isinstance(cause, TimeoutError):
            return Interrupted(_reason(cause))
        return BackendUnavailable(
            f"registry `{self.host}` cannot be reached: {cause}; check the name, the network and"
            " the proxy"
        )

    def _log_in(self, request: Request, refusal: Reply) -> str:
        """Returns the header ``Authorization`` that a response 401 requires."""
        self._credentials = credentials = find_credentials(self.host)
        for header in refusal.headers.getlist("WWW-Authenticate"):
            for challenge in parse_challenges(header):
                if challenge.scheme == "bearer" and "realm" in challenge.params:
                    return f"Bearer {self._fetch_token(challenge.params, credentials)}"
                if challenge.scheme == "basic" and credentials and credentials.password:
                    return credentials.basic()
        raise self._refused(request, refusal)

    def _fetch_token(self, params: Mapping[str, str], credentials: Credentials | None) -> str:
        realm = self.absolute(params["realm"])
        server = urllib.parse.urlsplit(realm).netloc
        if credentials and realm.startswith("http:") and not is_insecure(server):
            msg = f"registry `{self.host}` wants the password sent to `{realm}`, not encrypted"
            raise InvalidInput(msg)
        request = token_request(realm, params.get("service"), self._scopes, credentials)
        reply = self.request(request)
        if reply.status != 200:
            raise self._refused(request, reply)
        try:
            answer = json.loads(reply.data)
            return str(answer.get("token") or answer["access_token"])
        except (ValueError, KeyError, AttributeError):
            raise UnexpectedReply(f"token server {server}", "no token") from None

    def _refused(self, request: Request, reply: Reply) -> TorchXError | Interrupted:
        """Returns the error for an unexpected status, with the registry's message."""
        words = _words(reply)
        if self._scheme == "http" and _wants_https(request.method, reply):
            self._scheme = "https"
            return Interrupted("it speaks HTTPS")
        if reply.status in _TRANSIENT:
            return Interrupted(words, _retry_after(reply))
        msg = f"registry `{self.host}`: cannot {request.doing}: {words}"
        if reply.status in (401, 403):
            known = "is that of another user" if self._credentials else "is not there"
            msg += f"; the log-in in Docker's configuration {known} or lacks the right: run"
            return InvalidInput(f"{msg} `docker login {self.host}`")
        if reply.status in (400, 404, 405, 413, 415):
            return RefusedByRegistry(msg, reply.status)
        return UnexpectedReply(f"{request.method} {request.url}", words)


def _innermost(err: BaseException) -> BaseException:
    """Returns the error that urllib3 wraps, as an argument or as the cause; our own, unchanged."""
    inner = (e for e in (err.__cause__, *err.args) if isinstance(e, BaseException))
    wrapped = None if isinstance(err, TorchXError) else next(inner, None)
    return err if wrapped is None else _innermost(wrapped)


def _read_error(response: BaseHTTPResponse) -> Reply:
    """Reads a refusal with as much of its body as arrives."""
    data = b""
    with contextlib.suppress(HTTPError):
        data = response.read(_MAX_ERROR_BODY)
    _release(response)
    return Reply(response.status, response.headers, response.url or "", data)


def _release(response: BaseHTTPResponse) -> None:
    """Returns the connection to the pool, unless something is left to read."""
    if not response.closed:
        response.close()
    response.release_conn()


def _wants_https(method: str, reply: Reply) -> bool:
    """Returns True if a server reports that it requires HTTPS."""
    no_registry = "Docker-Distribution-Api-Version" not in reply.headers
    return reply.status == 400 and no_registry and (b"HTTPS" in reply.data or method == "HEAD")


def _words(reply: Reply) -> str:
    """Returns the status, and the registry's reason if it gives one."""
    phrase = f"{reply.status} {responses.get(reply.status, '')}".strip()
    try:
        answer: Any = json.loads(reply.data)
        reasons = [
            ": ".join(str(e[key]) for key in ("code", "message", "details") if e.get(key))
            for e in answer.get("errors") or [answer]
        ]
    except (ValueError, AttributeError, TypeError):
        text = reply.data.decode(errors="replace")
        reasons = [] if "<" in text else [" ".join(text.split())]
    words = "; ".join(filter(None, reasons))
    printable = "".join(c if c.isprintable() else " " for c in words)
    return f"{phrase}: {printable:.400}" if printable else phrase


def _retry_after(reply: Reply) -> float | None:
    """Returns the seconds of ``Retry-After``, given as a number or a date."""
    with contextlib.suppress(KeyError, InvalidHeader):
        return Retry().parse_retry_after(reply.headers["Retry-After"])
    return None


def _reason(err: BaseException) -> str:
    if isinstance(err, TimeoutError):
        return "it did not answer in time"
    return f"the connection broke ({str(err) or type(err).__name__})"
