"""Blobs that are uploaded to a registry, and the digests that name them."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torchx.errors import BackendUnavailable, UnexpectedReply
from torchx.workspace._registry._request import BLOCK, Interrupted

if TYPE_CHECKING:
    from torchx.workspace._registry._client import Registry


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
            msg = f"the layer `{self.path}` was truncated; build the image again"
            raise BackendUnavailable(msg)

    def is_whole(self) -> bool:
        """True if the file has its digest."""
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


def digest_of(data: bytes) -> str:
    """``sha256:…`` of some bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def check_digest(digest: str, data: bytes, what: str) -> None:
    """Raises ``UnexpectedReply`` unless the bytes are those that the digest names."""
    if not has_digest(digest, data):
        raise UnexpectedReply(what, f"something else than {digest}")


def has_digest(digest: str, data: bytes) -> bool:
    """True if the bytes have this digest, of ``sha256`` or ``sha512``."""
    algorithm, _, expected = digest.partition(":")
    known = algorithm in ("sha256", "sha512")
    return known and hashlib.new(algorithm, data).hexdigest() == expected
