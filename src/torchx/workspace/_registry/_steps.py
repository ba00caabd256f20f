"""Shows the progress of the upload of an image."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchx import _passing
from torchx.workspace._registry._blobs import Blob


class Steps:
    """The layers of an image being uploaded; usable from several threads.

    Args:
        blobs: the layers; others are not counted.
    """

    def __init__(self, repository: str, blobs: Sequence[Blob]) -> None:
        self._display = _passing.display()
        self._tally = _passing.Tally(f"pushing to `{repository}`")
        self._lock = threading.Lock()
        self._shown = ""
        self._digests = {blob.digest for blob in blobs}
        for blob in blobs:
            self._tally.note(blob.digest, size=blob.size)
        self._show()

    def note(self, blob: Blob, there: int) -> None:
        """Records how many bytes of the blob were sent."""
        if blob.digest not in self._digests:
            return
        with self._lock:
            self._tally.note(blob.digest, there)
            self._show()

    def finish(self, blob: Blob) -> None:
        """Records that the registry has the blob."""
        if blob.digest not in self._digests:
            return
        with self._lock:
            self._tally.finish(blob.digest)
            self._show()

    def counted(self, blob: Blob) -> Blob:
        """Wraps the blob to record each block that is read."""
        return blob if self._display is None else _Counted(blob, self)

    def _show(self) -> None:
        text = str(self._tally)
        if self._display is not None and text != self._shown:
            self._shown = text
            self._display(text)


@dataclass(frozen=True)
class _Counted:
    blob: Blob
    steps: Steps

    @property
    def digest(self) -> str:
        return self.blob.digest

    @property
    def size(self) -> int:
        return self.blob.size

    def read_from(self, offset: int) -> Iterator[bytes]:
        for block in self.blob.read_from(offset):
            yield block
            offset += len(block)
            self.steps.note(self.blob, offset)
