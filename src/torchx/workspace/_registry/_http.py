"""HTTP to one registry: connections that stay open, log-in, redirects, retries."""

import contextlib
import http.client
import json
import random
import re
import socket
import ssl
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx._startup.lazy_logger import get_logger
from torchx.errors import (
    BackendUnavailable,
    InvalidInput,
    RefusedByRegistry,
    TorchXError,
    UnexpectedReply,
)
from torchx.version import __version__
from torchx.workspace._registry._auth import Credentials, find_credentials, parse_challenges
from torchx.workspace._registry._connection import connect, is_insecure, untrusted

BLOCK = 1 << 18
"""Bytes that are read or sent at once."""

_TIMEOUT_S = 60
_STORE_TIMEOUT_S = 600  # a registry may check and move gigabytes before it answers a PUT
_MAX_REDIRECTS = 5
_MAX_ERROR_BODY = 1 << 16
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_DROPPED = (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError)

logger = get_logger(__name__)


@dataclass(frozen=True)
class Retries:
    """How long to wait before each further try, in seconds."""

    pauses_s: tuple[float, ...] = (0.5, 1, 2, 4, 8)
    longest_wait_s: float = 120
    """A registry that asks for more patience than this is not waited for."""

    def pause(self, failures: int, asked_s: float | None) -> bool:
        """Waits after so many failures in a row; ``False``, at once, if that were too many."""
        if failures > len(self.pauses_s) or (asked_s or 0) > self.longest_wait_s:
            return False
        time.sleep(max(asked_s or 0, self.pauses_s[failures - 1] * random.uniform(0.75, 1.25)))
        return True


class Interrupted(Exception):
    """The request may succeed later: the connection broke, or the registry is busy."""

    def __init__(self, reason: str, asked_s: float | None = None) -> None:
        super().__init__(reason)
        self.asked_s = asked_s


@dataclass(frozen=True)
class Body:
    """What a request sends: ``open`` gives the same bytes each time it is called."""

    length: int
    open: Callable[[], Iterable[bytes]]

    @classmethod
    def of(cls, data: bytes) -> "Body":
        return cls(len(data), lambda: [data] if data else [])


@dataclass(frozen=True)
class Request:
    """One request; ``url`` may be a path of the registry."""

    method: str
    url: str
    doing: str
    """For messages: `upload …`."""
    scopes: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body | None = None
    expected: frozenset[int] = frozenset({200})


@dataclass
class Reply:
    """Status, headers and URL of an answer; the body is in ``data`` unless it is streamed."""

    status: int
    headers: http.client.HTTPMessage
    url: str
    data: bytes = b""


class Http:
    """Talks to one registry from any number of threads.

    Args:
        host: as users name the registry.
        api_host: host and port that serve its API.
    """

    def __init__(self, host: str, api_host: str, retries: Retries | None = None) -> None:
        self.host = host
        self.retries = retries or Retries()
        self._api_host = api_host
        self._scheme = "http" if is_insecure(host) else "https"
        self._credentials: Credentials | None = None
        self._credentials_known = False
        self._authorizations: dict[tuple[str, ...], str] = {}
        self._lock = threading.Lock()
        self._aborted = False
        self._local = threading.local()
        self._all: list[http.client.HTTPConnection] = []

    def close(self) -> None:
        """Closes the connections of all threads."""
        for connection in self._all:
            connection.close()

    def abort(self) -> None:
        """Ends what other threads are doing; they can only clean up from now on."""
        self._aborted = True
        for connection in self._all:
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def absolute(self, url: str, base: str = "") -> str:
        """The URL for a path of the registry, or for a ``Location`` it gave.

        Raises:
            UnexpectedReply: if what it gave is none.
        """
        root = f"{self._scheme}://{self._api_host}"
        try:
            full = urllib.parse.urljoin(base or root, url)
            parts = urllib.parse.urlsplit(full)
        except ValueError:  # brackets that hold no address
            full, parts = "", urllib.parse.urlsplit("")
        if not parts.netloc or not full.isascii():
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
        failures = 0
        while True:
            try:
                return self.request_once(request, most_bytes)
            except Interrupted as err:
                failures += 1
                if not self.retries.pause(failures, err.asked_s):
                    raise self.gave_up(request.doing, err) from None
                logger.info("registry `%s`: %s: %s; trying again", self.host, request.doing, err)

    def gave_up(self, doing: str, why: Interrupted) -> BackendUnavailable:
        """The error after the last try."""
        return BackendUnavailable(f"registry `{self.host}`: cannot {doing}: {why}")

    def request_once(self, request: Request, most_bytes: int = 1 << 25) -> Reply:
        """Sends a request once, and reads the answer.

        Raises:
            Interrupted: if it may succeed later.
        """
        with self.stream(request) as (reply, response):
            try:
                reply.data = response.read(most_bytes + 1)
            except _DROPPED as err:
                raise Interrupted(_reason(err)) from None
            if len(reply.data) > most_bytes:
                raise UnexpectedReply(f"{request.method} {request.url}", "more than was expected")
            if response.length:  # `read` with a size does not tell
                raise Interrupted("the connection broke in the middle of the answer")
            return reply

    @contextlib.contextmanager
    def stream(self, request: Request) -> Iterator[tuple[Reply, http.client.HTTPResponse]]:
        """Sends a request once and gives the answer for reading."""
        reply, response, connection = self._authorized(request)
        done = False
        try:
            if reply.status not in request.expected:
                raise self._refused(request, reply, _error_body(response))
            yield reply, response
            done = response.isclosed() or response.length == 0
        finally:
            if not done:
                connection.close()  # what was not read must not be taken for the next answer

    def _authorized(
        self, request: Request
    ) -> tuple[Reply, http.client.HTTPResponse, http.client.HTTPConnection]:
        for fresh in (False, True):
            authorization = self._authorizations.get(request.scopes)
            reply, response, connection = self._followed(request, authorization)
            if reply.status != 401 or 401 in request.expected:
                break
            data = _error_body(response)
            connection.close()
            if fresh:
                raise self._refused(request, reply, data)
            self._log_in(request, reply, data)
        return reply, response, connection

    def _followed(
        self, request: Request, authorization: str | None
    ) -> tuple[Reply, http.client.HTTPResponse, http.client.HTTPConnection]:
        url, method = self.absolute(request.url), request.method
        for _ in range(_MAX_REDIRECTS + 1):
            headers = dict(request.headers)
            if authorization and urllib.parse.urlsplit(url).netloc == self._api_host:
                headers["Authorization"] = authorization
            response, connection = self._sent(method, url, headers, request.body)
            reply = Reply(response.status, response.headers, url)
            location = response.headers.get("Location")
            if response.status not in _REDIRECTS or not location:
                return reply, response, connection
            _error_body(response)
            if not response.isclosed():
                connection.close()
            target = self.absolute(location, url)
            if url.startswith("https:") and not target.startswith("https:"):
                msg = f"registry `{self.host}` redirects to `{target:.200}`, which is not encrypted"
                raise InvalidInput(msg)
            url = target
        raise UnexpectedReply(f"{method} {request.url}", "too many redirects")

    def _sent(
        self, method: str, url: str, headers: Mapping[str, str], body: Body | None
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        parts = urllib.parse.urlsplit(url)
        while True:
            if self._aborted and method != "DELETE":  # which cleans up
                raise BackendUnavailable(f"registry `{self.host}`: stopped")
            connection, target, reused = self._connection(parts)
            try:
                return _exchange(connection, method, target, headers, body), connection
            except _DROPPED as err:
                connection.close()
                if isinstance(err, ssl.SSLCertVerificationError):
                    raise BackendUnavailable(untrusted(self.host, err)) from None
                if reused and method in ("GET", "HEAD"):  # it was closed while idle
                    continue
                if isinstance(err, ConnectionRefusedError):
                    raise BackendUnavailable(_unreachable(self.host, str(err))) from None
                raise Interrupted(_reason(err)) from None
            except socket.gaierror as err:
                connection.close()
                if err.errno == socket.EAI_AGAIN:
                    raise Interrupted(f"the name `{parts.hostname}` cannot be resolved") from None
                raise BackendUnavailable(_unreachable(self.host, str(err))) from None
            except TorchXError:
                connection.close()
                raise
            except (OSError, UnicodeError) as err:
                # no route, network down; a name that DNS cannot have; an unreadable file to send
                connection.close()
                raise BackendUnavailable(_unreachable(self.host, str(err))) from None
            except BaseException:
                connection.close()
                raise

    def _connection(
        self, parts: urllib.parse.SplitResult
    ) -> tuple[http.client.HTTPConnection, str, bool]:
        """A connection of this thread, the target for its request line, whether it is open."""
        kept: dict[tuple[str, str], http.client.HTTPConnection]
        kept = self._local.__dict__.setdefault("kept", {})
        key = (parts.scheme, parts.netloc)
        if key not in kept:
            kept[key] = connect(parts, _TIMEOUT_S)
            with self._lock:
                self._all.append(kept[key])
        target = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
        return kept[key], target, kept[key].sock is not None

    def _log_in(self, request: Request, reply: Reply, data: bytes) -> None:
        """Gets what the registry's answer 401 asks for."""
        challenges = [
            challenge
            for header in reply.headers.get_all("WWW-Authenticate", [])
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
        raise self._refused(request, reply, data)

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
        headers: dict[str, str] = {}
        if credentials and credentials.identity_token:
            form = [
                *query,
                ("grant_type", "refresh_token"),
                ("client_id", "torchx"),
                ("refresh_token", credentials.identity_token),
                ("scope", " ".join(request.scopes)),
            ]
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            body = Body.of(urllib.parse.urlencode(form).encode())
            asked = Request("POST", realm, "log in", headers=headers, body=body)
        else:
            query += [("scope", scope) for scope in request.scopes]
            if credentials:
                query.append(("account", credentials.username))
                headers["Authorization"] = credentials.basic()
            joined = "&".join(filter(None, [parts.query, urllib.parse.urlencode(query)]))
            url = urllib.parse.urlunsplit(parts._replace(query=joined))
            asked = Request("GET", url, "log in", headers=headers)
        reply = self.request(_without_login(asked))
        if reply.status != 200:
            raise self._refused(request, reply, reply.data)
        try:
            answer = json.loads(reply.data)
            return str(answer.get("token") or answer["access_token"])
        except (ValueError, KeyError, AttributeError):
            raise UnexpectedReply(f"token server {parts.netloc}", "no token") from None

    def _refused(self, request: Request, reply: Reply, data: bytes) -> TorchXError | Interrupted:
        """What an unexpected status means, in the registry's own words."""
        said = _words(reply.status, data)
        if self._scheme == "http" and _wants_https(request.method, reply, data):
            self._scheme = "https"
            return Interrupted("it speaks HTTPS", 0)
        if reply.status in _TRANSIENT:
            return Interrupted(said, _retry_after(reply.headers.get("Retry-After")))
        msg = f"registry `{self.host}`: cannot {request.doing}: {said}"
        if reply.status in (401, 403):
            known = "is that of another user" if self._credentials else "is not there"
            msg += f"; the log-in in Docker's configuration {known} or lacks the right: run"
            return InvalidInput(f"{msg} `docker login {self.host}`")
        if reply.status in (400, 404, 405, 413, 415):
            return RefusedByRegistry(msg, reply.status)
        return UnexpectedReply(f"{request.method} {request.url}", said)


def _exchange(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: Body | None,
) -> http.client.HTTPResponse:
    connection.timeout = _STORE_TIMEOUT_S if method == "PUT" else _TIMEOUT_S
    if connection.sock is not None:
        connection.sock.settimeout(connection.timeout)
    connection.putrequest(method, target, skip_accept_encoding=True)
    connection.putheader("User-Agent", f"torchx/{__version__}")
    connection.putheader("Accept-Encoding", "identity")
    for name, value in headers.items():
        connection.putheader(name, value)
    if body is not None or method in ("POST", "PUT", "PATCH"):
        connection.putheader("Content-Length", str(body.length if body else 0))
    connection.endheaders()
    if body is not None:
        try:
            for block in body.open():
                connection.send(block)
        except (BrokenPipeError, ConnectionResetError):
            # it may have answered, "too large" for instance, before it hung up
            try:
                return connection.getresponse()
            except _DROPPED:
                raise ConnectionResetError("the connection broke while sending") from None
    return connection.getresponse()


def _wants_https(method: str, reply: Reply, data: bytes) -> bool:
    """Whether a server says that it was spoken to without encryption, and should not be."""
    no_registry = "Docker-Distribution-Api-Version" not in reply.headers
    return reply.status == 400 and no_registry and (b"HTTPS" in data or method == "HEAD")


def _error_body(response: http.client.HTTPResponse) -> bytes:
    """What an answer says, as far as it comes."""
    try:
        return response.read(_MAX_ERROR_BODY)
    except _DROPPED:
        return b""


def _without_login(request: Request) -> Request:
    """The token server's own refusal is not a reason to ask for a token."""
    return Request(
        request.method,
        request.url,
        request.doing,
        headers=request.headers,
        body=request.body,
        expected=frozenset({200, 400, 401, 403, 404}),
    )


def _words(status: int, data: bytes) -> str:
    """What an answer says is wrong, in its own words where it has any."""
    phrase = f"{status} {http.client.responses.get(status, '')}".strip()
    try:
        answer: Any = json.loads(data)
        errors = answer.get("errors") or [answer]
        said = [
            ": ".join(str(e[key]) for key in ("code", "message", "details") if e.get(key))
            for e in errors
        ]
    except (ValueError, AttributeError, KeyError, TypeError):
        text = data.decode(errors="replace")
        said = [] if "<" in text else [" ".join(text.split())]
    words = "; ".join(filter(None, said))
    printable = "".join(c if c.isprintable() else " " for c in words)
    return f"{phrase}: {printable:.400}" if printable else phrase


def _retry_after(value: str | None) -> float | None:
    """Seconds that ``Retry-After`` asks for, given as a number or a date."""
    if not value:
        return None
    if re.fullmatch(r"\s*\d{1,9}\s*", value):
        return float(value)
    import email.utils

    with contextlib.suppress(ValueError, TypeError):
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    return None


def _reason(err: BaseException) -> str:
    if isinstance(err, TimeoutError):
        return "it did not answer in time"
    return f"the connection broke ({str(err) or type(err).__name__})"


def _unreachable(host: str, why: str) -> str:
    return f"registry `{host}` cannot be reached: {why}; check the name, the network and the proxy"
