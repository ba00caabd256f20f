"""Packs a workspace into one layer, reproducibly, and incrementally on later builds.

The tar archive is cut into pieces of some files each, and every piece is a gzip member of its own;
concatenated, they are an ordinary gzip file (RFC 1952). A piece without changed files is copied
from the previous layer, and is neither read nor compressed again.
"""

import contextlib
import hashlib
import json
import os
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO

from torchx._projects.entry import LEAVE_OUT, Entry, open_entry, unreadable
from torchx.errors import InvalidInput
from torchx.workspace._registry._base_tree import Node
from torchx.workspace._registry._blobs import FileBlob
from torchx.workspace._registry._cache import Cache
from torchx.workspace._registry._plan import planned_layers

_FORMAT = 1
"""Part of every piece's key: change it with anything that changes the bytes."""
_LEVEL = 6
_PIECE = 4 << 20
"""A piece ends after this many bytes; a larger file is a piece by itself."""
_CUT_MASK = 0x3F
"""A piece also ends after a path whose checksum ends in these bits, one in 64, so that an added
file moves the ends of few pieces."""
_SETTLED_NS = 2_000_000_000
"""A file that changed more recently may change again with the same time stamp."""
_BLOCK = 1 << 20
_MEMBER_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # no name, no time, no operating system
_OCTAL_LIMIT = 8 << 30
_KEPT_LAYERS = 3
"""Layers kept per workspace, besides those of images still to be pushed."""

_BlockSink = Callable[[bytes], object]


@dataclass(frozen=True)
class Layer:
    """A layer in a file."""

    blob: FileBlob
    diff_id: str
    """Digest of the archive before compression."""


def make_layer(
    entries: Sequence[Entry],
    into: Sequence[tuple[str, Node]],
    cache: Cache,
    slot: str,
    now_ns: int | None = None,
) -> Layer:
    """Packs entries into a layer.

    Args:
        entries: sorted by path.
        into: the directories on the path of the workspace in the image, outermost first, by path
            relative to the root, with the image's entries there.
        slot: name under which the previous layer is found.
        now_ns: time when the entries were found; ``None`` is now.

    Raises:
        UnreadableWorkspace: if a file cannot be read.
        InvalidInput: if a file changes while it is packed.
        BackendUnavailable: if the layer cannot be written.
    """
    settled_ns = (time.time_ns() if now_ns is None else now_ns) - _SETTLED_NS
    prefix = f"{into[-1][0]}/" if into else ""
    pieces = [_Piece.of_directories(into)] if into else []
    pieces += _cut(entries, prefix, settled_ns)
    last = _Last.load(cache, slot)
    if last.keys == [piece.key for piece in pieces] and None not in last.keys and last.is_there():
        cache.touch("layers", last.layer.blob.digest)
        cache.touch("slots", slot)
        return last.layer
    return _write(pieces, last, cache, slot)


class _Piece:
    """Entries that are compressed together.

    Args:
        key: equal keys mean equal bytes; ``None`` if the files may still be changing.
    """

    __slots__ = ("entries", "head", "key", "large", "prefix")

    def __init__(
        self, key: str | None, prefix: str, entries: Sequence[Entry], head: bytes = b""
    ) -> None:
        self.key = key
        self.prefix = prefix
        self.entries = entries
        self.head = head
        self.large = len(entries) == 1 and entries[0].size > _PIECE

    @classmethod
    def of_directories(cls, nodes: Sequence[tuple[str, Node]]) -> "_Piece":
        """Returns the piece of the directories on the path of the workspace."""
        head = b"".join(
            _header(os.fsencode(path) + b"/", node.mode, uid=node.uid, gid=node.gid, kind=b"5")
            for path, node in nodes
        )
        return cls(_key([head]), "", (), head)

    def raw_blocks(self) -> Iterator[bytes]:
        """Yields the piece's part of the archive."""
        if self.head:
            yield self.head
        for entry in self.entries:
            name = os.fsencode(self.prefix + entry.path)
            if entry.kind == "dir":
                yield _header(name + b"/", entry.mode, kind=b"5")
            elif entry.kind == "link":
                yield _header(name, 0o777, kind=b"2", target=os.fsencode(entry.target or ""))
            else:
                yield _header(name, _mode_of_root(entry.mode), size=entry.size)
                yield from _content(entry)
                yield bytes(-entry.size % 512)


def _mode_of_root(mode: int) -> int:
    """Returns a file's mode after it is given to root, as Docker's builder does."""
    return mode & (0o1777 if mode & 0o010 else 0o3777)


def _cut(entries: Sequence[Entry], prefix: str, settled_ns: int) -> Iterator[_Piece]:
    start = size = 0
    settled = True
    seen: list[bytes] = [os.fsencode(prefix)]
    for number, entry in enumerate(entries):
        if entry.size > _PIECE and number > start:
            yield _Piece(_key(seen) if settled else None, prefix, entries[start:number])
            start, size, settled, seen = number, 0, True, seen[:1]
        identity, certain = _identity(entry, settled_ns)
        seen.append(identity)
        settled = settled and certain
        size += 512 + entry.size
        if size >= _PIECE or zlib.crc32(os.fsencode(entry.path)) & _CUT_MASK == _CUT_MASK:
            yield _Piece(_key(seen) if settled else None, prefix, entries[start : number + 1])
            start, size, settled, seen = number + 1, 0, True, seen[:1]
    if start < len(entries):
        yield _Piece(_key(seen) if settled else None, prefix, entries[start:])


def _identity(entry: Entry, settled_ns: int) -> tuple[bytes, bool]:
    """Returns everything that an entry's bytes depend on, and whether that is certain."""
    start = os.fsencode(entry.path)
    if entry.kind != "file":
        target = os.fsencode(entry.target or "")
        return b"%s\0%s\0%o\0%s" % (start, entry.kind.encode(), entry.mode, target), True
    status = entry.status
    if status is None:
        if entry.content is None:  # a remote file, whose time of change is unknown
            return start, False
        content = hashlib.sha256(entry.content).digest()
        return b"%s\0content\0%o\0%s" % (start, entry.mode, content), True
    identity = b"%s\0%o\0%d\0%d\0%d\0%d\0%d" % (
        start,
        entry.mode,
        entry.size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
        status.st_dev,
    )
    return identity, status.st_ctime_ns < settled_ns and status.st_mtime_ns < settled_ns


def _key(seen: Sequence[bytes]) -> str:
    made_by = f"{_FORMAT} {_LEVEL} {zlib.ZLIB_RUNTIME_VERSION}".encode()
    return hashlib.blake2b(b"\0\0".join([made_by, *seen]), digest_size=16).hexdigest()


@dataclass(frozen=True)
class _Last:
    """The previous layer, and the positions of its pieces."""

    layer: Layer
    keys: list[str | None]
    places: dict[str, tuple[int, int]]
    """Key to offset and length."""
    older: list[str]
    """Digests of earlier layers."""

    @classmethod
    def load(cls, cache: Cache, slot: str) -> "_Last":
        """Loads the layer from the cache; one without pieces if there is none."""
        try:
            kept = json.loads(cache.read("slots", slot) or b"")
            path = str(cache.path("layers", kept["digest"]))
            layer = Layer(FileBlob(path, kept["digest"], kept["size"]), kept["diff_id"])
            pieces = [(key, offset, length) for key, offset, length in kept["pieces"]]
            older = [str(digest) for digest in kept["older"]]
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls(Layer(FileBlob("", "", -1), ""), [], {}, [])
        places = {key: (offset, length) for key, offset, length in pieces if key}
        return cls(layer, [key for key, _, _ in pieces], places, older)

    def is_there(self) -> bool:
        """Returns True if the file of the layer exists and is complete."""
        try:
            return os.stat(self.layer.blob.path).st_size == self.layer.blob.size
        except OSError:
            return False


def _write(pieces: Sequence[_Piece], last: _Last, cache: Cache, slot: str) -> Layer:
    diff, compressed = hashlib.sha256(), hashlib.sha256()
    offset = 0
    places: list[tuple[str | None, int, int]] = []
    with contextlib.ExitStack() as stack:
        file, keep_as = stack.enter_context(cache.new_file("layers"))
        source = None
        with contextlib.suppress(OSError):  # then everything is packed again
            source = stack.enter_context(open(last.layer.blob.path, "rb")) if last.places else None

        def put(block: bytes) -> None:
            nonlocal offset
            compressed.update(block)
            file.write(block)
            offset += len(block)

        for piece, packed in _packed(pieces, last, source):
            start = offset
            if packed is None:
                _pack(piece.raw_blocks(), diff.update, put)
            else:
                diff.update(packed[0])
                put(packed[1])
            places.append((piece.key, start, offset - start))
        _pack(iter([bytes(1024)]), diff.update, put)
        digest = f"sha256:{compressed.hexdigest()}"
        keep_as(digest)
    layer = Layer(
        FileBlob(str(cache.path("layers", digest)), digest, offset), f"sha256:{diff.hexdigest()}"
    )
    _remember(layer, places, last, cache, slot)
    return layer


def _remember(
    layer: Layer,
    places: list[tuple[str | None, int, int]],
    last: _Last,
    cache: Cache,
    slot: str,
) -> None:
    digest = layer.blob.digest
    older = [d for d in dict.fromkeys((last.layer.blob.digest, *last.older)) if d and d != digest]
    kept = set(older[: _KEPT_LAYERS - 1])
    if len(older) > len(kept):
        kept |= planned_layers(cache)
    index = {
        "digest": digest,
        "size": layer.blob.size,
        "diff_id": layer.diff_id,
        "pieces": places,
        "older": [digest for digest in older if digest in kept],
    }
    cache.write("slots", slot, json.dumps(index).encode())
    for former in older:
        if former not in kept:
            cache.remove("layers", former)
    for kind in ("layers", "slots", "plans", "trees", "configs", "manifests"):
        cache.prune(kind)


def _packed(
    pieces: Sequence[_Piece], last: _Last, source: BinaryIO | None
) -> Iterator[tuple[_Piece, tuple[bytes, bytes] | None]]:
    """Yields each piece, before and after compression; ``None`` if it is too large for memory."""
    workers = min(4, os.cpu_count() or 1)
    waiting: deque[tuple[_Piece, Future[tuple[bytes, bytes]] | None]] = deque()

    def pack(piece: _Piece) -> tuple[bytes, bytes]:
        place = last.places.get(piece.key) if source is not None and piece.key else None
        if place is not None and source is not None:
            compressed = os.pread(source.fileno(), place[1], place[0])
            with contextlib.suppress(zlib.error):  # it was damaged
                return zlib.decompress(compressed, wbits=31), compressed
        raw: list[bytes] = []
        out: list[bytes] = []
        _pack(piece.raw_blocks(), raw.append, out.append)
        return b"".join(raw), b"".join(out)

    with ThreadPoolExecutor(workers, thread_name_prefix="torchx-pack") as pool:
        try:
            for piece in pieces:
                waiting.append((piece, None if piece.large else pool.submit(pack, piece)))
                if len(waiting) > 4 * workers:
                    first, future = waiting.popleft()
                    yield first, future.result() if future else None
            for first, future in waiting:
                yield first, future.result() if future else None
        finally:
            pool.shutdown(cancel_futures=True)


def _pack(blocks: Iterator[bytes], on_raw: _BlockSink, on_compressed: _BlockSink) -> None:
    """Compresses blocks into one gzip member."""
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    checksum = size = 0
    on_compressed(_MEMBER_HEADER)
    for block in blocks:
        on_raw(block)
        checksum = zlib.crc32(block, checksum)
        size += len(block)
        on_compressed(compressor.compress(block))
    on_compressed(compressor.flush())
    on_compressed(checksum.to_bytes(4, "little") + (size & 0xFFFFFFFF).to_bytes(4, "little"))


def _content(entry: Entry) -> Iterator[bytes]:
    """Yields the content of a file, of exactly the size that was found."""
    left = entry.size
    with open_entry(entry) as file:
        while left:
            try:
                block = file.read(min(left, _BLOCK))
            except OSError as err:
                raise unreadable(entry.source, err) from err
            if not block:
                break
            left -= len(block)
            yield block
        if left or file.read(1):
            msg = (
                f"`{entry.source or entry.path}` of the workspace changed while it was packed; run"
                f" again when nothing writes to it, or {LEAVE_OUT}"
            )
            raise InvalidInput(msg)


def _header(
    name: bytes,
    mode: int,
    *,
    size: int = 0,
    uid: int = 0,
    gid: int = 0,
    kind: bytes = b"0",
    target: bytes = b"",
) -> bytes:
    """Returns the header of a file in the format `pax`, with time 0."""
    records = b""
    if len(name) > 100:
        records += _record(b"path", name)
    if len(target) > 100:
        records += _record(b"linkpath", target)
    if size >= _OCTAL_LIMIT:
        records += _record(b"size", b"%d" % size)
        size = 0
    for key, number in ((b"uid", uid), (b"gid", gid)):
        if number > 0o7777777:
            records += _record(key, b"%d" % number)
    if not records:
        return _block(name, mode, size, uid, gid, kind, target)
    return (
        _block(b"PaxHeaders/" + name[:80], 0o644, len(records), 0, 0, b"x", b"")
        + records
        + bytes(-len(records) % 512)
        + _block(name[:100], mode, size, uid & 0o7777777, gid & 0o7777777, kind, target[:100])
    )


def _block(
    name: bytes, mode: int, size: int, uid: int, gid: int, kind: bytes, target: bytes
) -> bytes:
    start = name.ljust(100, b"\0") + b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, uid, gid, size, 0)
    end = kind + target.ljust(100, b"\0") + _MAGIC
    checksum = sum(start) + sum(end) + 8 * 0x20  # the field itself counts as spaces
    return start + b"%06o\0 " % checksum + end


_MAGIC = b"ustar\x0000".ljust(255, b"\0")


def _record(key: bytes, value: bytes) -> bytes:
    """``27 path=…``: the number is the length of the whole record."""
    rest = b" %s=%s\n" % (key, value)
    length = len(rest)
    while length != len(rest) + len(b"%d" % length):
        length = len(rest) + len(b"%d" % length)
    return b"%d%s" % (length, rest)
