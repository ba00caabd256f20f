"""The calls of the OCI distribution API; https://github.com/opencontainers/distribution-spec."""

import contextlib
import hashlib
import http.client
import re
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol, TypeVar, cast

from torchx._lazy_logger import get_logger
from torchx.errors import BackendUnavailable, TorchXError, UnexpectedReply
from torchx.workspace._registry._http import (
    BLOCK,
    Body,
    Http,
    Interrupted,
    RefusedByRegistry,
    Reply,
    Request,
    Retries,
)
from torchx.workspace._registry._reference import Repository

DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"

_ACCEPT = ", ".join((OCI_INDEX, OCI_MANIFEST, DOCKER_INDEX, DOCKER_MANIFEST))
_MAX_MANIFEST = 4 << 20  # what the specification makes registries accept
_AT_ONCE = 1 << 20
"""A blob up to this size goes in one request."""
_SMALL_CHUNK = 5 << 20
"""Size of the pieces for a registry, or a proxy, that refuses a whole blob at once."""
_MAX_RESTARTS = 4
_PROGRESS_S = 5

T = TypeVar("T")

logger = get_logger(__name__)


@dataclass(frozen=True)
class Manifest:
    """A manifest or an index, byte by byte as the registry has it."""

    media_type: str
    data: bytes

    @property
    def digest(self) -> str:
        """Its name in the registry."""
        return digest_of(self.data)


class Blob(Protocol):
    """Something to upload."""

    @property
    def digest(self) -> str:
        """Its name in a registry."""

    @property
    def size(self) -> int:
        """Number of bytes."""

    def read_from(self, offset: int) -> Iterator[bytes]:
        """Its bytes from ``offset`` to the end, in blocks."""


@dataclass(frozen=True)
class BytesBlob:
    """A blob in memory."""

    data: bytes

    @property
    def digest(self) -> str:
        """Name of the blob."""
        return digest_of(self.data)

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self.data)

    def read_from(self, offset: int) -> Iterator[bytes]:
        """Its bytes from ``offset`` on."""
        yield self.data[offset:]


@dataclass(frozen=True)
class FileBlob:
    """A blob in a file."""

    path: str
    digest: str
    size: int

    def read_from(self, offset: int) -> Iterator[bytes]:
        """Its bytes from ``offset`` on.

        Raises:
            BackendUnavailable: if the file is gone or too short.
        """
        left = self.size - offset
        try:
            with open(self.path, "rb", buffering=0) as file:
                file.seek(offset)
                while left and (block := file.read(min(BLOCK, left))):
                    left -= len(block)
                    yield block
        except OSError as err:
            msg = f"the layer `{self.path}` cannot be read: {err.strerror}; build the image again"
            raise BackendUnavailable(msg) from None
        if left:
            msg = f"the layer `{self.path}` was cut off; build the image again"
            raise BackendUnavailable(msg)

    def is_whole(self) -> bool:
        """Whether the file is what its digest says."""
        hasher = hashlib.sha256()
        for block in self.read_from(0):
            hasher.update(block)
        return self.digest == f"sha256:{hasher.hexdigest()}"


@dataclass(frozen=True)
class RemoteBlob:
    """A blob of a registry."""

    registry: "Registry"
    digest: str
    size: int

    def read_from(self, offset: int) -> Iterator[bytes]:
        """Its bytes from ``offset`` on."""
        with self.registry.open_blob(self.digest, offset) as file:
            left = self.size - offset
            while left and (block := file.read(min(BLOCK, left))):
                left -= len(block)
                yield block
        if left:
            raise Interrupted(f"`{self.registry.repository}` sent less than the whole blob")


class Registry:
    """One repository of a registry.

    Args:
        push: whether to ask for the right to write.
        mount_from: path of another repository of the registry whose blobs are to be mounted.
    """

    def __init__(
        self,
        repository: Repository,
        *,
        push: bool = False,
        mount_from: str | None = None,
        retries: Retries | None = None,
    ) -> None:
        self.repository = repository
        self._http = Http(repository.host, repository.api_host, retries)
        self._root = f"/v2/{repository.path}"
        self._scopes: tuple[str, ...] = (
            f"repository:{repository.path}:{'pull,push' if push else 'pull'}",
        )
        if mount_from:
            self._scopes += (f"repository:{mount_from}:pull",)

    def __enter__(self) -> "Registry":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def abort(self) -> None:
        """Makes what other threads do here fail soon."""
        self._http.abort()

    def find_manifest(self, version: str) -> str | None:
        """Digest of the image with this tag or digest; ``None`` if there is none.

        A registry that does not tell digests gives ``""``.
        """
        reply = self._http.request(
            self._request(
                "HEAD",
                f"/manifests/{version}",
                f"look for `{self.repository}:{version}`",
                headers={"Accept": _ACCEPT},
                expected=frozenset({200, 404}),
            )
        )
        return reply.headers.get("Docker-Content-Digest", "") if reply.status == 200 else None

    def get_manifest(self, version: str) -> Manifest:
        """Fetches a manifest or index by tag or digest.

        Raises:
            RefusedByRegistry: with status 404 if there is none.
            UnexpectedReply: if it is not what the digest says.
        """
        what = f"get the image `{self.repository}{'@' if ':' in version else ':'}{version}`"
        reply = self._http.request(
            self._request("GET", f"/manifests/{version}", what, headers={"Accept": _ACCEPT}),
            _MAX_MANIFEST,
        )
        media_type = reply.headers.get("Content-Type", "").partition(";")[0].strip()
        manifest = Manifest(media_type, reply.data)
        promised = version if ":" in version else reply.headers.get("Docker-Content-Digest")
        if promised:
            check_digest(promised, reply.data, what)
        return manifest

    def put_manifest(self, tag: str, manifest: Manifest) -> None:
        """Stores an image of which all blobs are there, and names it."""
        reply = self._http.request(
            self._request(
                "PUT",
                f"/manifests/{tag}",
                f"push the image `{self.repository}:{tag}`",
                headers={"Content-Type": manifest.media_type},
                body=Body.of(manifest.data),
                expected=frozenset({200, 201, 202}),
            )
        )
        stored = reply.headers.get("Docker-Content-Digest")
        if stored and stored != manifest.digest:
            raise UnexpectedReply(f"PUT manifest {tag}", f"stored as {stored}")

    def has_blob(self, digest: str) -> bool:
        """Whether the repository has a blob."""
        doing = f"look for the layer `{digest}`"
        expected = frozenset({200, 404})
        return self._ask("HEAD", f"/blobs/{digest}", doing, expected).status == 200

    def get_blob(self, digest: str, most_bytes: int) -> bytes:
        """Fetches a small blob whole.

        Raises:
            UnexpectedReply: if it is longer, or is not what the digest says.
        """
        what = f"get `{self.repository}@{digest}`"
        reply = self._http.request(self._request("GET", f"/blobs/{digest}", what), most_bytes)
        check_digest(digest, reply.data, what)
        return reply.data

    @contextlib.contextmanager
    def open_blob(self, digest: str, offset: int = 0) -> Iterator["_BlobReader"]:
        """Opens a blob for reading from ``offset`` on; reads raise ``Interrupted``."""
        request = self._request(
            "GET",
            f"/blobs/{digest}",
            f"get `{self.repository}@{digest}`",
            headers={"Range": f"bytes={offset}-"} if offset else {},
            expected=frozenset({200, 206}),
        )
        with self._http.stream(request) as (reply, response):
            reader = _BlobReader(response)
            skip = offset if reply.status == 200 else 0
            while skip:
                block = reader.read(min(BLOCK, skip))
                if not block:
                    raise Interrupted("less than the whole blob came")
                skip -= len(block)
            yield reader

    def read_blob(self, digest: str, read: Callable[[BinaryIO], T]) -> T:
        """What ``read`` makes of a blob; it is called again if the connection breaks."""
        failures = 0
        while True:
            try:
                with self.open_blob(digest) as blob:
                    return read(cast(BinaryIO, blob))  # it has the part that readers use
            except Interrupted as err:
                failures += 1
                if not self._http.retries.pause(failures, err.asked_s):
                    raise self._http.gave_up(f"read the layer `{digest}`", err) from None

    def upload(self, blob: Blob, mount_from: str | None = None) -> None:
        """Uploads a blob; goes on after an interruption where the registry can.

        Args:
            mount_from: path of a repository of this registry that has the blob.

        Raises:
            InvalidInput: if the registry refuses it.
            BackendUnavailable: if the registry cannot be reached, or stays busy.
        """
        doing = f"upload the layer `{blob.digest}`"
        for _ in range(_MAX_RESTARTS):
            location = self._start_upload(blob, doing, mount_from)
            if location is None:
                return
            upload = _Upload(self, blob, location, doing)
            try:
                upload.run()
                return
            except _UploadLost as err:
                upload.abandon()
                logger.info("%s: %s; starting it again", doing, err)
            except BaseException:
                upload.abandon()
                raise
        msg = f"registry `{self.repository.host}`: cannot {doing}: it forgets what was sent"
        raise BackendUnavailable(msg)

    def _start_upload(self, blob: Blob, doing: str, mount_from: str | None) -> str | None:
        """Where to upload to; ``None`` if the registry took the blob from the other repository."""
        path = "/blobs/uploads/"
        if mount_from:
            path += "?" + urllib.parse.urlencode({"mount": blob.digest, "from": mount_from})
        reply = self._ask("POST", path, doing, frozenset({201, 202}))
        location = reply.headers.get("Location")
        if reply.status == 201:
            return None
        if not location:
            raise UnexpectedReply(f"POST {self._root}{path}", "no Location")
        return self._http.absolute(location, reply.url)

    def _ask(self, method: str, path: str, doing: str, expected: frozenset[int]) -> Reply:
        return self._http.request(self._request(method, path, doing, expected=expected))

    def _request(
        self,
        method: str,
        path: str,
        doing: str,
        *,
        headers: dict[str, str] | None = None,
        body: Body | None = None,
        expected: frozenset[int] = frozenset({200}),
    ) -> Request:
        url = self._root + path if path.startswith("/") else path
        return Request(method, url, doing, self._scopes, headers or {}, body, expected)


class _BlobReader:
    """Reads an answer; what breaks is ``Interrupted``."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def read(self, size: int = -1) -> bytes:
        """At most ``size`` bytes; ``b""`` at the end."""
        try:
            block = self._response.read(size)
        except (OSError, http.client.HTTPException) as err:
            raise Interrupted(f"the connection broke ({err})") from None
        if not block and size and self._response.length:  # `read` with a size does not tell
            raise Interrupted("the connection broke in the middle of a blob")
        return block


class _UploadLost(Exception):
    """The registry does not know the upload any more, or not how far it was."""


class _Upload:
    """One upload session: `PATCH` for the bytes, `GET` for how far it came, `PUT` for the end."""

    def __init__(self, registry: Registry, blob: Blob, location: str, doing: str) -> None:
        self._registry = registry
        self._http = registry._http
        self._blob = blob
        self._location = location
        self._doing = doing
        self._offset = 0
        self._chunk = 0
        self._failures = 0

    def run(self) -> None:
        """Sends the blob and has the registry check its digest."""
        if self._blob.size <= _AT_ONCE:
            self._finish(with_body=True)
            return
        while self._offset < self._blob.size:
            try:
                self._send_next()
                self._failures = 0
            except Interrupted as err:
                self._pause(err)
                self._ask_offset()
            except RefusedByRegistry as err:
                self._after_refusal(err)
        self._finish(with_body=False)

    def abandon(self) -> None:
        """Tells the registry that no more will come; it would keep what it has for days."""
        request = self._request("DELETE", frozenset({200, 202, 204, 404}))
        for _ in range(2):  # the first may meet a connection that is being ended
            with contextlib.suppress(Interrupted, TorchXError):
                self._http.request_once(request)
                return

    def _send_next(self) -> None:
        start, size = self._offset, self._blob.size
        end = min(size, start + self._chunk) if self._chunk else size
        headers = {"Content-Type": "application/octet-stream"}
        if start or end < size:
            headers["Content-Range"] = f"{start}-{end - 1}"
        body = Body(end - start, lambda: self._blocks(start, end))
        request = self._request("PATCH", frozenset({200, 201, 202, 204, 416}), headers, body)
        reply = self._http.request_once(request)
        if reply.status == 416:
            self._ask_offset()
            return
        self._follow(reply)
        taken = _taken(reply)
        self._offset = end if taken is None or taken < start else taken

    def _blocks(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes from ``start`` to ``end``; says now and then how far they are sent."""
        said = time.monotonic()
        for block in self._blob.read_from(start):
            yield block[: end - start]
            start += len(block)
            if start >= end:
                return
            if time.monotonic() - said > _PROGRESS_S:
                said = time.monotonic()
                logger.info("%s: %d %% sent", self._doing, 100 * start // self._blob.size)

    def _after_refusal(self, err: RefusedByRegistry) -> None:
        if err.status == 413 and (not self._chunk or self._chunk > _SMALL_CHUNK):
            self._chunk = _SMALL_CHUNK
            self._ask_offset()
        elif err.status in (400, 404) and self._offset:
            raise _UploadLost(str(err)) from None
        else:
            raise err

    def _ask_offset(self) -> None:
        """Asks how many bytes the registry has.

        Raises:
            _UploadLost: if it has forgotten the upload.
        """
        request = self._request("GET", frozenset({200, 202, 204, 400, 404, 405, 416}))
        reply = self._http.request(request)
        if reply.status >= 400:
            raise _UploadLost(f"the registry cannot tell how much it has ({reply.status})")
        self._follow(reply)
        self._offset = _taken(reply) or 0
        if self._offset > self._blob.size:
            raise _UploadLost("the registry has more than was sent")

    def _finish(self, *, with_body: bool) -> None:
        body = Body(self._blob.size, lambda: self._blob.read_from(0)) if with_body else None
        headers = {"Content-Type": "application/octet-stream"}
        while True:
            joint = "&" if urllib.parse.urlsplit(self._location).query else "?"
            url = f"{self._location}{joint}digest={urllib.parse.quote(self._blob.digest)}"
            request = self._request("PUT", frozenset({200, 201, 204}), headers, body, url)
            try:
                self._http.request_once(request)
                return
            except Interrupted as err:
                self._pause(err)
                if self._registry.has_blob(self._blob.digest):  # only the answer was lost
                    return
                self._ask_offset()
                if self._offset != (0 if with_body else self._blob.size):
                    raise _UploadLost(str(err)) from None

    def _pause(self, err: Interrupted) -> None:
        self._failures += 1
        if not self._http.retries.pause(self._failures, err.asked_s):
            raise self._http.gave_up(self._doing, err) from None
        logger.info("%s: %s; going on", self._doing, err)

    def _follow(self, reply: Reply) -> None:
        location = reply.headers.get("Location")
        if location:
            self._location = self._http.absolute(location, reply.url)

    def _request(
        self,
        method: str,
        expected: frozenset[int],
        headers: dict[str, str] | None = None,
        body: Body | None = None,
        url: str = "",
    ) -> Request:
        return Request(
            method,
            url or self._location,
            self._doing,
            self._registry._scopes,
            headers or {},
            body,
            expected,
        )


def digest_of(data: bytes) -> str:
    """``sha256:…`` of some bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def check_digest(digest: str, data: bytes, what: str) -> None:
    """Raises ``UnexpectedReply`` unless the bytes are those that the digest names."""
    algorithm, _, expected = digest.partition(":")
    if algorithm not in ("sha256", "sha512"):
        raise UnexpectedReply(what, f"the digest {digest}")
    if hashlib.new(algorithm, data).hexdigest() != expected:
        raise UnexpectedReply(what, f"something else than {digest}")


def _taken(reply: Reply) -> int | None:
    """How many bytes the registry has, of ``Range: 0-41``; ``None`` if it does not say."""
    match = re.fullmatch(r"(?:bytes=)?0-(\d+)", reply.headers.get("Range", "").strip())
    if not match:
        return None
    last = int(match[1])
    return last + 1 if last else 0  # registries say `0-0` for nothing
