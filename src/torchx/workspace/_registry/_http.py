"""HTTP to one registry: log-in, redirects and retries.

Connections, TLS, proxies and reading and sending are urllib3's. Three things are not:

* Redirects, as urllib3 decides by the name of the host alone: here the log-in goes to the registry
  only, each host has the certificates that Docker has for it, and none leads out of TLS.
* The loop of retries, though ``urllib3.Retry`` says how long the pauses are: an upload goes on
  where the registry says it stopped, a read that breaks in the middle is begun again, and a
  registry that asks for more patience than a user has is not waited for.
* The log-in, of which urllib3 knows nothing.
"""

import contextlib
import json
import socket
import ssl
import threading
import urllib.parse
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import responses
from typing import Any, TypeVar

from urllib3 import BaseHTTPResponse, HTTPConnectionPool, HTTPHeaderDict, Retry, Timeout
from urllib3.exceptions import (
    HTTPError,
    InvalidHeader,
    LocationValueError,
    MaxRetryError,
    NewConnectionError,
    ProxyError,
)

from torchx._lazy_logger import get_logger
from torchx.errors import BackendUnavailable, InvalidInput, TorchXError, UnexpectedReply
from torchx.version import __version__
from torchx.workspace._registry._auth import Credentials, find_credentials, parse_challenges
from torchx.workspace._registry._connection import is_insecure, open_pool, untrusted
from torchx.workspace._registry._request import BLOCK, Body, Interrupted, RefusedByRegistry, Request

RETRIES = Retry(5, backoff_factor=0.5, backoff_jitter=0.25)

_TIMEOUT_S = 60
_STORE_TIMEOUT_S = 600  # a registry may check and move gigabytes before it answers a PUT
_LONGEST_WAIT_S = 120
"""A registry that asks for more patience than this is not waited for."""
_MAX_REDIRECTS = 5
_MAX_ERROR_BODY = 1 << 16
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})

T = TypeVar("T")

logger = get_logger(__name__)


@dataclass(frozen=True)
class Reply:
    """An answer that was read."""

    status: int
    headers: HTTPHeaderDict
    url: str
    data: bytes


class Http:
    """Talks to one registry from any number of threads.

    Args:
        host: as users name the registry.
        api_host: host and port that serve its API.
        retries: how often a request is repeated, and the pauses.
    """

    def __init__(self, host: str, api_host: str, retries: Retry | None = None) -> None:
        self.host = host
        self.retries = RETRIES if retries is None else retries
        self._api_host = api_host
        self._scheme = "http" if is_insecure(host) else "https"
        self._credentials: Credentials | None = None
        self._credentials_known = False
        self._authorizations: dict[tuple[str, ...], str] = {}
        self._lock = threading.Lock()
        self._aborted = threading.Event()
        self._pools: dict[tuple[str, str], HTTPConnectionPool] = {}
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()

    def close(self) -> None:
        """Closes all connections."""
        for pool in self._pools.values():
            pool.close()

    def abort(self) -> None:
        """Ends what other threads are doing; they can only clean up from now on."""
        self._aborted.set()
        for connection in [*self._connections]:
            with contextlib.suppress(OSError, AttributeError):  # closed, or not open yet
                connection.sock.shutdown(socket.SHUT_RDWR)

    def absolute(self, url: str, base: str = "") -> str:
        """The URL for a path of the registry, or for a ``Location`` it gave.

        Raises:
            UnexpectedReply: if what it gave is none.
        """
        try:
            full = urllib.parse.urljoin(base or f"{self._scheme}://{self._api_host}", url)
            parts = urllib.parse.urlsplit(full)
            known = parts.hostname and parts.scheme in ("http", "https") and parts.port != 0
        except ValueError:  # brackets that hold no address, a port that is no number
            known = False
        if not known or not full.isascii():
            raise UnexpectedReply(f"registry {self.host}", f"the address {url}, which is no URL")
        if parts.netloc == self._api_host:  # a proxy in front may hide which scheme is right
            full = urllib.parse.urlunsplit(parts._replace(scheme=self._scheme))
        return full

    def request(self, request: Request, most_bytes: int = 1 << 25) -> Reply:
        """Sends a request that may be repeated, and reads the answer.

        Raises:
            InvalidInput: if the registry refuses.
            BackendUnavailable: if it cannot be reached, or stays busy.
        """
        return self.with_retries(request.doing, lambda: self.request_once(request, most_bytes))

    def with_retries(self, doing: str, call: Callable[[], T]) -> T:
        """The result of a call, which is made again after ``Interrupted``."""
        retries = self.retries
        while True:
            try:
                return call()
            except Interrupted as err:
                retries = self.pause(retries, doing, err)

    def pause(self, retries: Retry, doing: str, why: Interrupted) -> Retry:
        """Waits before the next try, and gives the tries that are left after it.

        Raises:
            BackendUnavailable: if there is none.
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
        """Sends a request once, and reads the answer.

        Raises:
            Interrupted: if it may succeed later.
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
        """Sends a request once and gives the answer for reading.

        Raises:
            Interrupted: if it may succeed later, also while it is read.
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
        """Sends a request, and once more with a log-in if the registry asks for one."""
        response = self.follow_redirects(request)
        if response.status == 401 and 401 not in request.expected:
            self._log_in(request, _read_error(response))
            response = self.follow_redirects(request)
        return response

    def follow_redirects(self, request: Request) -> BaseHTTPResponse:
        """Sends a request to where it leads in the end; only the registry gets the log-in."""
        url = self.absolute(request.url)
        for _ in range(_MAX_REDIRECTS + 1):
            headers = dict(request.headers)
            authorization = self._authorizations.get(request.scopes)
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
        """Sends a request to one place."""
        if self._aborted.is_set() and method != "DELETE":  # which cleans up
            raise BackendUnavailable(f"registry `{self.host}`: stopped")
        parts = urllib.parse.urlsplit(url)
        sent = {"User-Agent": f"torchx/{__version__}", "Accept-Encoding": "identity", **headers}
        if isinstance(body, Body):
            sent["Content-Length"] = str(body.length)
        response = self._pool(parts).urlopen(
            method,
            urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, "")),
            body=body,
            headers=sent,
            retries=False,
            redirect=False,
            timeout=Timeout(_TIMEOUT_S, _STORE_TIMEOUT_S if method == "PUT" else _TIMEOUT_S),
            preload_content=False,
            decode_content=False,
        )
        response.url = url
        return response

    def _pool(self, parts: urllib.parse.SplitResult) -> HTTPConnectionPool:
        key = (parts.scheme, parts.netloc)
        with self._lock:
            if key not in self._pools:
                pool = open_pool(parts)
                make = pool.ConnectionCls

                def remembered(*args: Any, **settings: Any) -> Any:
                    connection = make(*args, **settings)
                    self._connections.add(connection)
                    return connection

                pool.ConnectionCls = remembered  # type: ignore[assignment]  # for `abort`
                self._pools[key] = pool
            return self._pools[key]

    def _failure(self, err: HTTPError) -> Exception:
        """Our error for one of urllib3."""
        cause = _innermost(err)
        if isinstance(cause, TorchXError):  # of the body that was to be sent
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

    def _log_in(self, request: Request, reply: Reply) -> None:
        """Gets what the registry's answer 401 asks for."""
        challenges = [
            challenge
            for header in reply.headers.getlist("WWW-Authenticate")
            for challenge in parse_challenges(header)
        ]
        credentials = self._find_credentials()
        for challenge in challenges:
            if challenge.scheme == "bearer" and "realm" in challenge.params:
                token = self._fetch_token(challenge.params, request, credentials)
                self._authorizations[request.scopes] = f"Bearer {token}"
                return
            if challenge.scheme == "basic" and credentials and credentials.password:
                self._authorizations[request.scopes] = credentials.basic()
                return
        raise self._refused(request, reply)

    def _find_credentials(self) -> Credentials | None:
        with self._lock:
            if not self._credentials_known:
                self._credentials = find_credentials(self.host)
                self._credentials_known = True
            return self._credentials

    def _fetch_token(
        self, params: Mapping[str, str], request: Request, credentials: Credentials | None
    ) -> str:
        """Asks the token server that the registry named; https://distribution.github.io."""
        realm = self.absolute(params["realm"])
        parts = urllib.parse.urlsplit(realm)
        if credentials and parts.scheme != "https" and not is_insecure(parts.netloc):
            msg = f"registry `{self.host}` wants the password sent to `{realm}`, not encrypted"
            raise InvalidInput(msg)
        query = [("service", params["service"])] if "service" in params else []
        method, headers, form = "GET", {}, None
        if credentials and credentials.identity_token:
            query += [
                ("grant_type", "refresh_token"),
                ("client_id", "torchx"),
                ("refresh_token", credentials.identity_token),
                ("scope", " ".join(request.scopes)),
            ]
            method, form = "POST", urllib.parse.urlencode(query).encode()
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        else:
            query += [("scope", scope) for scope in request.scopes]
            if credentials:
                query.append(("account", credentials.username))
                headers["Authorization"] = credentials.basic()
            joined = "&".join(filter(None, [parts.query, urllib.parse.urlencode(query)]))
            realm = urllib.parse.urlunsplit(parts._replace(query=joined))
        # its own refusal is not a reason to ask for a token
        expected = frozenset({200, 400, 401, 403, 404})
        reply = self.request(
            Request(method, realm, "log in", headers=headers, body=form, expected=expected)
        )
        if reply.status != 200:
            raise self._refused(request, reply)
        try:
            answer = json.loads(reply.data)
            return str(answer.get("token") or answer["access_token"])
        except (ValueError, KeyError, AttributeError):
            raise UnexpectedReply(f"token server {parts.netloc}", "no token") from None

    def _refused(self, request: Request, reply: Reply) -> TorchXError | Interrupted:
        """The error for an unexpected status, in the registry's own words."""
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
    """The error that urllib3 wraps, as an argument or as the cause; our own, as it is."""
    inner = (e for e in (err.__cause__, *err.args) if isinstance(e, BaseException))
    wrapped = None if isinstance(err, TorchXError) else next(inner, None)
    return err if wrapped is None else _innermost(wrapped)


def _read_error(response: BaseHTTPResponse) -> Reply:
    """A refusal with its body, as far as that comes."""
    data = b""
    with contextlib.suppress(HTTPError):
        data = response.read(_MAX_ERROR_BODY)
    _release(response)
    return Reply(response.status, response.headers, response.url or "", data)


def _release(response: BaseHTTPResponse) -> None:
    """Keeps the connection for other requests, unless something is left to read."""
    if not response.closed:
        response.close()
    response.release_conn()


def _wants_https(method: str, reply: Reply) -> bool:
    """True if a server says that it was spoken to without encryption, and should not be."""
    no_registry = "Docker-Distribution-Api-Version" not in reply.headers
    return reply.status == 400 and no_registry and (b"HTTPS" in reply.data or method == "HEAD")


def _words(reply: Reply) -> str:
    """The status, and the reason in the registry's own words where it gives any."""
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
    """Seconds that ``Retry-After`` asks for, given as a number or a date."""
    with contextlib.suppress(KeyError, InvalidHeader):
        return Retry().parse_retry_after(reply.headers["Retry-After"])
    return None


def _reason(err: BaseException) -> str:
    if isinstance(err, TimeoutError):
        return "it did not answer in time"
    return f"the connection broke ({str(err) or type(err).__name__})"
