"""Entries of a workspace as a tar archive that is generated while it is read."""

import io
import os
import struct
from collections.abc import Generator, Iterator, Sequence

from torchx._projects.entry import LEAVE_OUT, Entry, open_entry, read_small
from torchx.errors import TorchXError, UnreadableWorkspace

CHUNK_BYTES = 1 << 20
_BLOCK = 512
_ZEROS = bytes(_BLOCK)
_KINDS = {"file": b"0", "dir": b"5", "link": b"2"}
# owners and the time are 0, so that the same tree gives the same archive
_OWNERS = b"0000000\0" * 2
_TIME = b"00000000000\0"
_MAGIC = b"ustar  \0"
_OWN_SUM = sum(_OWNERS) + sum(_TIME) + sum(_MAGIC) + 8 * ord(" ")
_HEADER = struct.Struct("100s 8s 16s 12s 12s 8s 1s 100s 255s")
"""Name, mode, owners, size, time, check sum, kind, target of a link, and unused fields."""


class TarStream:
    """An archive for one reader: iterated, or read like a file.

    ``failure`` is the error that ended it early, for callers that receive another error.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._parts = _parts(entries)
        self._left: bytes | memoryview = b""
        self.failure: TorchXError | None = None

    def __iter__(self) -> Iterator[bytes]:
        while chunk := self.read(CHUNK_BYTES):
            yield chunk

    def read(self, size: int = -1) -> bytes:
        """Returns at most ``size`` bytes, the rest for -1; empty at the end."""
        parts = [self._left]
        have = len(self._left)
        try:
            while (size < 0 or have < size) and (part := next(self._parts, b"")):
                parts.append(part)
                have += len(part)
        except TorchXError as err:
            self.failure = err
            raise
        last = memoryview(parts.pop())
        cut = len(last) - (have - size) if 0 <= size < have else len(last)
        self._left = last[cut:]
        return b"".join((*parts, last[:cut]))  # the only time that the content is copied

    def close(self) -> None:
        """Closes the file that is being read."""
        self._parts.close()


def _parts(entries: Sequence[Entry]) -> Generator[bytes, None, None]:
    """Yields headers and contents; none of them is empty."""
    for entry in entries:
        yield _header(entry)
        if entry.kind == "file" and entry.size:
            if entry.size <= CHUNK_BYTES:
                yield _whole(entry)
            else:
                yield from _large(entry)
            if padding := -entry.size % _BLOCK:
                yield _ZEROS[:padding]
    yield _ZEROS * 2


def _whole(entry: Entry) -> bytes:
    data = read_small(entry) if entry.status is not None else _read(entry)
    if len(data) < entry.size:
        raise _changed(entry)
    return data[: entry.size]


def _read(entry: Entry) -> bytes:
    with open_entry(entry) as file:
        return file.read()


def _large(entry: Entry) -> Iterator[bytes]:
    left = entry.size
    with open_entry(entry) as file:
        while left:
            data = file.read(min(left, CHUNK_BYTES))
            if not data:
                raise _changed(entry)
            left -= len(data)
            yield data


def _changed(entry: Entry) -> UnreadableWorkspace:
    msg = (
        f"`{entry.source or entry.path}` of the workspace became shorter while it was read; run it"
        f" again, or {LEAVE_OUT}"
    )
    return UnreadableWorkspace(msg)


def _header(entry: Entry) -> bytes:
    name = os.fsencode(entry.path)
    if entry.kind == "dir":
        name += b"/"
    target = os.fsencode(entry.target) if entry.target else b""
    before = b""
    if len(target) > 100:
        before += _long(b"K", target)
        target = target[:100]
    if len(name) > 100:
        before += _long(b"L", name)
        name = name[:100]
    size = entry.size if entry.kind == "file" else 0
    return before + _block(name, entry.mode, size, _KINDS[entry.kind], target)


def _long(kind: bytes, text: bytes) -> bytes:
    """Returns the block before an entry with a long name or target, as GNU tar writes it."""
    size = len(text) + 1
    return _block(b"././@LongLink", 0o644, size, kind, b"") + text + b"\0" * (1 + -size % _BLOCK)


def _block(name: bytes, mode: int, size: int, kind: bytes, target: bytes) -> bytes:
    octal = b"%011o\0" % size if size < 1 << 33 else b"\x80" + size.to_bytes(11, "big")
    mode_text = b"%07o\0" % mode
    total = _OWN_SUM + sum(name) + sum(mode_text) + sum(octal) + kind[0] + sum(target)
    return _HEADER.pack(
        name, mode_text, _OWNERS, octal, _TIME, b"%06o\0 " % total, kind, target, _MAGIC
    )


class TarFile(io.RawIOBase):
    """The archive as a file whose content is generated while it is read."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self._stream = TarStream(entries)
        self._at = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Returns at most ``size`` bytes, the rest for -1; empty at the end."""
        data = self._stream.read(-1 if size is None else size)
        self._at += len(data)
        return data

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves to a position; going back generates the archive again."""
        if whence == os.SEEK_END:
            while self.read(CHUNK_BYTES):
                pass
        goal = max(offset + (0 if whence == os.SEEK_SET else self._at), 0)
        if goal < self._at:
            self._stream.close()
            self._stream = TarStream(self._entries)
            self._at = 0
        while goal > self._at and self.read(min(goal - self._at, CHUNK_BYTES)):
            pass
        return self._at

    def close(self) -> None:
        self._stream.close()
        super().close()
