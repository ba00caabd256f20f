"""The calls of the OCI distribution API; https://github.com/opencontainers/distribution-spec."""

import contextlib
import http.client
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, TypeVar, cast

from torchx._startup.lazy_logger import get_logger
from torchx.errors import BackendUnavailable, UnexpectedReply
from torchx.workspace._registry._blobs import Blob, check_digest, digest_of
from torchx.workspace._registry._http import (
    BLOCK,
    Body,
    Http,
    Interrupted,
    Reply,
    Request,
    Retries,
)
from torchx.workspace._registry._reference import Repository
from torchx.workspace._registry._upload import Upload, UploadLost

DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"

_ACCEPT = ", ".join((OCI_INDEX, OCI_MANIFEST, DOCKER_INDEX, DOCKER_MANIFEST))
_MAX_MANIFEST = 4 << 20  # what the specification makes registries accept
_MAX_RESTARTS = 4

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
            upload = Upload(
                blob, self._http, self._scopes, location, lambda: self.has_blob(blob.digest)
            )
            try:
                upload.run()
                return
            except UploadLost as err:
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
