"""The calls of the OCI distribution API; https://github.com/opencontainers/distribution-spec."""

import contextlib
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

from torchx._startup.lazy_logger import get_logger
from torchx.errors import BackendUnavailable, NotInstalled, UnexpectedReply
from torchx.workspace._registry._blobs import Blob, check_digest, digest_of
from torchx.workspace._registry._reference import Repository
from torchx.workspace._registry._request import BLOCK, Interrupted, Request
from torchx.workspace._registry._upload import Upload, UploadLost

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, Retry

    from torchx.workspace._registry._http import Http, Reply

DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"

_ACCEPT = f"{OCI_INDEX}, {OCI_MANIFEST}, {DOCKER_INDEX}, {DOCKER_MANIFEST}"
_MAX_MANIFEST = 4 << 20  # the size that the specification makes registries accept
_MAX_RESTARTS = 4

T = TypeVar("T")

logger = get_logger(__name__)


@dataclass(frozen=True)
class Manifest:
    """A manifest or an index, with the registry's exact bytes."""

    media_type: str
    data: bytes

    @property
    def digest(self) -> str:
        """Its name in the registry."""
        return digest_of(self.data)


def _http(
    repository: Repository,
    scopes: Sequence[str],
    retries: "Retry | None",
    hurry_s: float | None = None,
) -> "Http":
    try:
        from torchx.workspace._registry._http import Http
    except ImportError as err:  # `ModuleNotFoundError`, or a name that version 1 does not have
        if (err.name or "").partition(".")[0] != "urllib3":
            raise
        msg = "images without a daemon need urllib3 2 or newer"
        raise NotInstalled(msg, name="urllib3", extra="registry") from None
    return Http(repository.host, repository.api_host, scopes, retries, hurry_s)


class Registry:
    """A client for one repository of a registry.

    Args:
        push: request the right to write.
        mount_from: path of another repository of the registry whose blobs are to be mounted.
        hurry_s: each request is sent once, and is not waited for longer than that.
    """

    def __init__(
        self,
        repository: Repository,
        *,
        push: bool = False,
        mount_from: str | None = None,
        retries: "Retry | None" = None,
        hurry_s: float | None = None,
    ) -> None:
        self.repository = repository
        scopes = [f"repository:{repository.path}:{'pull,push' if push else 'pull'}"]
        if mount_from:
            scopes.append(f"repository:{mount_from}:pull")
        self._http = _http(repository, scopes, retries, hurry_s)
        self._root = f"/v2/{repository.path}"

    def __enter__(self) -> "Registry":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def abort(self) -> None:
        """Makes calls of other threads fail soon."""
        self._http.abort()

    def ask(self, *, log_in: bool) -> "Reply":
        """The answer of the registry's root, which all registries have.

        Args:
            log_in: as its user; otherwise as nobody, for whom 401 is an answer as well.
        """
        expected = frozenset({200} if log_in else {200, 401})
        return self._http.request(Request("GET", "/v2/", "ask for its root", expected=expected))

    def find_manifest(self, version: str) -> str | None:
        """Returns the digest of the image with this tag or digest; ``None`` if there is none.

        ``""`` if the registry does not report digests.
        """
        reply = self._http.request(
            Request(
                "HEAD",
                f"{self._root}/manifests/{version}",
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
            UnexpectedReply: if its content does not match the digest.
        """
        what = f"get the image `{self.repository}{'@' if ':' in version else ':'}{version}`"
        url = f"{self._root}/manifests/{version}"
        request = Request("GET", url, what, headers={"Accept": _ACCEPT})
        reply = self._http.request(request, _MAX_MANIFEST)
        media_type = reply.headers.get("Content-Type", "").partition(";")[0].strip()
        manifest = Manifest(media_type, reply.data)
        promised = version if ":" in version else reply.headers.get("Docker-Content-Digest")
        if promised:
            check_digest(promised, reply.data, what)
        return manifest

    def put_manifest(self, tag: str, manifest: Manifest) -> None:
        """Stores the manifest of an image whose blobs are all uploaded, under a tag."""
        reply = self._http.request(
            Request(
                "PUT",
                f"{self._root}/manifests/{tag}",
                f"push the image `{self.repository}:{tag}`",
                headers={"Content-Type": manifest.media_type},
                body=manifest.data,
                expected=frozenset({200, 201, 202}),
            )
        )
        stored = reply.headers.get("Docker-Content-Digest")
        if stored and stored != manifest.digest:
            raise UnexpectedReply(f"PUT manifest {tag}", f"stored as {stored}")

    def has_blob(self, digest: str) -> bool:
        """Returns True if the repository has a blob."""
        doing = f"look for the layer `{digest}`"
        expected = frozenset({200, 404})
        request = Request("HEAD", f"{self._root}/blobs/{digest}", doing, expected=expected)
        return self._http.request(request).status == 200

    def get_blob(self, digest: str, most_bytes: int) -> bytes:
        """Fetches a small blob whole.

        Raises:
            UnexpectedReply: if it is longer, or does not match the digest.
        """
        what = f"get `{self.repository}@{digest}`"
        request = Request("GET", f"{self._root}/blobs/{digest}", what)
        reply = self._http.request(request, most_bytes)
        check_digest(digest, reply.data, what)
        return reply.data

    @contextlib.contextmanager
    def open_blob(self, digest: str, offset: int = 0) -> "Iterator[BaseHTTPResponse]":
        """Opens a blob for reading from ``offset`` on; reads may raise ``Interrupted``."""
        request = Request(
            "GET",
            f"{self._root}/blobs/{digest}",
            f"get `{self.repository}@{digest}`",
            headers={"Range": f"bytes={offset}-"} if offset else {},
            expected=frozenset({200, 206}),
        )
        with self._http.stream(request) as response:
            skip = offset if response.status == 200 else 0
            while skip:
                block = response.read(min(BLOCK, skip))
                if not block:
                    raise Interrupted("the blob was truncated")
                skip -= len(block)
            yield response

    def read_blob(self, digest: str, read: Callable[[BinaryIO], T]) -> T:
        """Returns the result of ``read`` for a blob; retries it if the connection breaks."""

        def read_once() -> T:
            with self.open_blob(digest) as blob:
                return read(cast(BinaryIO, blob))  # it has the methods that readers use

        return self._http.with_retries(f"read the layer `{digest}`", read_once)

    def upload(self, blob: Blob, mount_from: str | None = None) -> None:
        """Uploads a blob; resumes after an interruption if the registry can.

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
            upload = Upload(blob, self._http, location, lambda: self.has_blob(blob.digest))
            try:
                upload.run()
                return
            except UploadLost as err:
                upload.abandon()
                logger.info("%s: %s; starting again", doing, err)
            except BaseException:
                upload.abandon()
                raise
        msg = f"registry `{self.repository.host}`: cannot {doing}: it keeps losing the upload"
        raise BackendUnavailable(msg)

    def _start_upload(self, blob: Blob, doing: str, mount_from: str | None) -> str | None:
        """Starts an upload and returns its URL; ``None`` if the registry mounted the blob."""
        url = f"{self._root}/blobs/uploads/"
        if mount_from:
            url += "?" + urllib.parse.urlencode({"mount": blob.digest, "from": mount_from})
        reply = self._http.request(Request("POST", url, doing, expected=frozenset({201, 202})))
        location = reply.headers.get("Location")
        if reply.status == 201:
            return None
        if not location:
            raise UnexpectedReply(f"POST {url}", "no Location")
        return self._http.absolute(location, reply.url)
