"""Files of a base image by their path, read from as few of its layers as possible."""

import gzip
import json
import posixpath
import tarfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from torchx._projects.entry import size_text
from torchx._startup.lazy_logger import get_logger
from torchx.errors import UnexpectedReply, UnsupportedRequest
from torchx.workspace._registry._base import BaseImage
from torchx.workspace._registry._cache import Cache
from torchx.workspace._registry._client import Registry

if TYPE_CHECKING:
    from urllib3 import Retry

_READ_ALWAYS = 4 << 20
"""Layers up to this size are always read; larger ones only if needed."""
_READ_FIRST = 256 << 20
"""Size up to which the first layer, which holds the base system, is always read."""

_DAMAGED = (tarfile.TarError, EOFError)
"""Errors of reading a damaged archive, for all compressions."""

logger = get_logger(__name__)


class Node(NamedTuple):
    """A file of an image; a tuple, because large images have hundreds of thousands.

    Args:
        kind: ``dir``, ``link``, or ``file`` for everything else.
        target: of a link.
    """

    kind: str
    mode: int = 0
    uid: int = 0
    gid: int = 0
    target: str = ""


class BaseTree:
    """Files of a base image, read from as few layers as needed.

    The first layer and small ones are always read. A larger one is read if it may decide the
    result: a directory's mode and owner are those of the highest layer that has it.
    """

    def __init__(self, base: BaseImage, cache: Cache, retries: "Retry | None" = None) -> None:
        self._base = base
        self._cache = cache
        self._retries = retries
        self._layers: list[_LayerTree | None] = []
        for number, layer in enumerate(base.layers):
            limit = _READ_ALWAYS if number else _READ_FIRST
            self._layers.append(self._read(layer) if layer["size"] <= limit else None)

    @property
    def unread_bytes(self) -> int:
        """Compressed size of the layers that were not read."""
        pairs = zip(self._base.layers, self._layers, strict=True)
        return sum(layer["size"] for layer, tree in pairs if tree is None)

    def known(self, path: str) -> Node | None:
        """Returns the file at a path relative to the root, from the layers read so far.

        An unread layer may have removed or replaced it; ``find`` reads that, too.
        """
        read = [tree for tree in reversed(self._layers) if tree is not None]
        if not any(path in tree.nodes for tree in read):  # like most files of a workspace
            return None
        return _look_up(path, read)

    def find(self, path: str) -> Node | None:
        """Returns the file at a path relative to the root; ``None`` if there is none.

        Raises:
            BackendUnavailable: if the registry cannot be reached, or stays busy.
            UnsupportedRequest: if a layer cannot be decompressed here.
        """
        return _look_up(path, map(self._layer, reversed(range(len(self._layers)))))

    def _layer(self, number: int) -> "_LayerTree":
        tree = self._layers[number]
        if tree is None:
            tree = self._layers[number] = self._read(self._base.layers[number])
        return tree

    def _read(self, layer: Mapping[str, Any]) -> "_LayerTree":
        kept = _LayerTree.from_json(self._cache.read("trees", layer["digest"]) or b"")
        if kept is not None:
            self._cache.touch("trees", layer["digest"])  # reading it may have taken gigabytes
            return kept
        if layer.get("urls"):  # not in the registry
            return _LayerTree()
        digest, size = layer["digest"], layer["size"]
        what = f"layer `{digest}` of `{self._base.reference}`"
        compression = _compression(layer["mediaType"], what)
        logger.info("reading what is in layer `%s` (%s)", digest, size_text(size))
        with Registry(self._base.reference.repository, retries=self._retries) as registry:
            tree = registry.read_blob(digest, lambda blob: _read_layer(blob, digest, compression))
        self._cache.write("trees", digest, tree.to_json())
        return tree


def _look_up(path: str, layers: "Iterable[_LayerTree]") -> Node | None:
    """Returns the file at a path; reads layers, highest first, until one has or hides it."""
    for tree in layers:
        node = tree.nodes.get(path)
        if node is not None or tree.hides(path):
            return node
    return None


@dataclass(frozen=True)
class _LayerTree:
    nodes: dict[str, Node] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    """Removed paths of lower layers, with everything below them."""
    emptied: frozenset[str] = frozenset()
    """Directories whose content in lower layers is removed."""

    def hides(self, path: str) -> bool:
        """Returns True if this layer removes a path of lower layers."""
        if path in self.removed:
            return True
        folder = path
        while folder:
            folder = posixpath.dirname(folder)
            if folder in self.removed or folder in self.emptied:
                return True
            node = self.nodes.get(folder)
            if node is not None and node.kind != "dir":
                return True
        return False

    def to_json(self) -> bytes:
        return json.dumps([self.nodes, [*self.removed], [*self.emptied]]).encode()

    @classmethod
    def from_json(cls, text: bytes) -> "_LayerTree | None":
        """Parses the text of ``to_json``; ``None`` if it is damaged."""
        try:
            nodes, removed, emptied = json.loads(text)
            read = {path: Node(*node) for path, node in nodes.items()}
            return cls(read, frozenset(removed), frozenset(emptied))
        except (ValueError, TypeError, AttributeError):
            return None


@dataclass(frozen=True)
class _Compression:
    """The way to read an archive.

    Args:
        open: returns a reader of the decompressed data.
        damaged: errors of reading a layer that is damaged.
    """

    open: Callable[[BinaryIO], Any]
    damaged: tuple[type[Exception], ...] = _DAMAGED


def _read_layer(blob: BinaryIO, digest: str, compression: _Compression) -> _LayerTree:
    """Reads the files of one layer."""
    nodes: dict[str, Node] = {}
    removed, emptied = set(), set()
    try:
        with tarfile.open(fileobj=compression.open(blob), mode="r|") as tar:
            for member in tar:
                path = posixpath.normpath(posixpath.join("/", member.name)).lstrip("/")
                folder, name = posixpath.split(path)
                if name == ".wh..wh..opq":
                    emptied.add(folder)
                elif name.startswith(".wh."):
                    removed.add(posixpath.join(folder, name[len(".wh.") :]))
                else:
                    nodes[path] = _node(member)
                tar.members.clear()  # type: ignore[attr-defined]  # it would keep them all
    except compression.damaged as err:
        raise UnexpectedReply(f"layer {digest}", str(err)) from None
    return _LayerTree(nodes, frozenset(removed), frozenset(emptied))


def _node(member: tarfile.TarInfo) -> Node:
    if member.isdir():
        return Node("dir", member.mode & 0o7777, member.uid, member.gid)
    if member.issym():
        return Node("link", target=member.linkname)
    return Node("file")


def _compression(media_type: str, what: str) -> _Compression:
    """Returns the compression of a layer.

    Raises:
        UnsupportedRequest: if this Python cannot decompress it.
    """
    if media_type.endswith("tar"):
        return _Compression(lambda blob: blob)
    if not media_type.endswith("zstd"):
        # unlike `tarfile`, it reads all members
        errors = (*_DAMAGED, zlib.error, gzip.BadGzipFile)
        return _Compression(lambda blob: gzip.GzipFile(fileobj=blob), errors)
    import importlib

    try:
        zstd = importlib.import_module("compression.zstd")  # Python 3.14
        return _Compression(zstd.ZstdFile, (*_DAMAGED, zstd.ZstdError))
    except ImportError:
        pass
    try:
        zstd = importlib.import_module("zstandard")
    except ImportError:
        msg = (
            f"{what} is compressed with zstd, which this Python cannot read; install it with: pip"
            " install 'torchx[zstd]', or build with image_builder=docker"
        )
        raise UnsupportedRequest(msg) from None
    reader = zstd.ZstdDecompressor().stream_reader
    return _Compression(
        lambda blob: reader(blob, read_across_frames=True), (*_DAMAGED, zstd.ZstdError)
    )
