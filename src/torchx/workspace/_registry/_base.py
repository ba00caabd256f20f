"""The image that a workspace is added to: its manifest, its configuration, its directories."""

import gzip
import json
import os
import platform as host_platform
import posixpath
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from torchx._lazy_logger import get_logger
from torchx.errors import InvalidInput, UnexpectedReply, UnsupportedRequest
from torchx.workspace._registry._cache import Cache
from torchx.workspace._registry._client import (
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    OCI_INDEX,
    OCI_MANIFEST,
    Manifest,
    Registry,
)
from torchx.workspace._registry._http import RefusedByRegistry, Retries
from torchx.workspace._registry._reference import Reference, is_digest

_MAX_CONFIG = 16 << 20
_CONFIGS = (
    "application/vnd.docker.container.image.v1+json",
    "application/vnd.oci.image.config.v1+json",
)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm/v7", "i686": "386"}
_READ_ALWAYS = 4 << 20
"""Layers up to this size are read for their directories; larger ones only if needed."""
_READ_FIRST = 256 << 20
"""The same for the first layer, which holds the base system."""

logger = get_logger(__name__)


@dataclass(frozen=True)
class BaseImage:
    """An image for one platform."""

    reference: Reference
    manifest: Manifest
    config: bytes
    layers: tuple[Mapping[str, Any], ...]
    """Descriptors: ``mediaType``, ``digest``, ``size``; lowest first."""

    @property
    def working_dir(self) -> str:
        """Absolute path where the workspace goes."""
        settings = json.loads(self.config).get("config") or {}
        return posixpath.normpath(posixpath.join("/", settings.get("WorkingDir") or "/"))


def fetch_base(
    reference: Reference, cache: Cache, platform: str | None = None, retries: Retries | None = None
) -> BaseImage:
    """Asks the registry for an image; what it has told before is not fetched again.

    Args:
        platform: ``os/architecture[/variant]``; ``None`` is ``$DOCKER_DEFAULT_PLATFORM``, and
            Linux on this machine's architecture where that is not set.

    Raises:
        InvalidInput: if there is no such image, or not for the platform.
        UnsupportedRequest: if a layer cannot be added to it.
    """
    wanted = platform or os.environ.get("DOCKER_DEFAULT_PLATFORM") or this_platform()
    with Registry(reference.repository, retries=retries) as registry:
        manifest = _fetch_manifest(registry, _digest(registry, reference), cache)
        if manifest.media_type in (DOCKER_INDEX, OCI_INDEX):
            chosen = pick_platform(manifest.data, wanted, str(reference))
            manifest = _fetch_manifest(registry, chosen, cache)
        content = _image_manifest(manifest, str(reference))
        descriptor = content["config"]
        config = cache.read("configs", descriptor["digest"])
        if config is None:
            config = registry.get_blob(descriptor["digest"], _MAX_CONFIG)
            cache.write("configs", descriptor["digest"], config)
    _check_config(config, str(reference))
    return BaseImage(reference, manifest, config, tuple(content["layers"]))


def this_platform() -> str:
    """Linux on this machine's architecture."""
    machine = host_platform.machine().lower()
    return f"linux/{_ARCHITECTURES.get(machine, machine)}"


def pick_platform(index: bytes, wanted: str, image: str) -> str:
    """Digest of the manifest for a platform in an index.

    Raises:
        InvalidInput: if the index has none; the message lists what it has.
    """
    try:
        entries = [
            (_platform_name(entry.get("platform") or {}), entry["digest"])
            for entry in json.loads(index).get("manifests") or []
        ]
        if not all(is_digest(digest) for _, digest in entries):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UnexpectedReply(f"index of {image}", index.decode("utf-8", "replace")) from None
    entries = [e for e in entries if not e[0].startswith("unknown/")]  # attestations
    for exact in (True, False):
        for name, digest in entries:
            if _fits(name, wanted, exact=exact):
                return str(digest)
    names = ", ".join(f"`{name}`" for name in dict.fromkeys(name for name, _ in entries))
    msg = (
        f"the image `{image}` is not there for the platform `{wanted}`, only for {names or 'none'};"
        " name one of them in DOCKER_DEFAULT_PLATFORM, or choose another image"
    )
    raise InvalidInput(msg)


def _platform_name(platform: Mapping[str, Any]) -> str:
    parts = [platform.get("os"), platform.get("architecture"), platform.get("variant")]
    return "/".join(str(part) for part in parts if part)


def _fits(name: str, wanted: str, *, exact: bool) -> bool:
    if exact:
        return name == wanted
    default = {"arm64": "v8", "arm": "v7"}
    full = [
        p if p.count("/") > 1 else f"{p}/{default.get(p.partition('/')[2], '')}"
        for p in (name, wanted)
    ]
    return full[0] == full[1]


def _digest(registry: Registry, reference: Reference) -> str:
    """Digest that a name stands for now, or the tag if the registry does not tell digests."""
    if reference.digest:
        return reference.digest
    found = registry.find_manifest(reference.version)
    if found is None:
        raise _no_such_image(reference)
    return found if is_digest(found) else reference.version


def _fetch_manifest(registry: Registry, version: str, cache: Cache) -> Manifest:
    """A manifest by digest, which never changes, from the cache if it was seen before."""
    kept = cache.read("manifests", version) if ":" in version else None
    if kept is not None:
        media_type, _, data = kept.partition(b"\n")
        return Manifest(media_type.decode(), data)
    try:
        manifest = registry.get_manifest(version)
    except RefusedByRegistry as err:
        if err.status != 404:
            raise
        raise InvalidInput(f"{err}; check its name and tag") from None
    cache.write("manifests", manifest.digest, manifest.media_type.encode() + b"\n" + manifest.data)
    return manifest


def _no_such_image(reference: Reference) -> InvalidInput:
    return InvalidInput(
        f"registry `{reference.repository.host}` has no image `{reference}`; check its name and"
        " tag, or push it there first"
    )


def _image_manifest(manifest: Manifest, image: str) -> dict[str, Any]:
    """The manifest of one image, checked as far as it is used."""
    if manifest.media_type not in (DOCKER_MANIFEST, OCI_MANIFEST):
        msg = (
            f"the manifest of `{image}` is of the type `{manifest.media_type}`; a workspace can be"
            f" added to {DOCKER_MANIFEST} and {OCI_MANIFEST}: push the image again with a current"
            " Docker"
        )
        raise UnsupportedRequest(msg)
    try:
        content: dict[str, Any] = json.loads(manifest.data)
        config_type = content["config"]["mediaType"]
        for descriptor in (content["config"], *content["layers"]):
            if not (is_digest(descriptor["digest"]) and isinstance(descriptor["size"], int)):
                raise TypeError
            if not isinstance(descriptor["mediaType"], str):
                raise TypeError
    except (ValueError, KeyError, TypeError):
        raise UnexpectedReply(
            f"manifest of {image}", manifest.data.decode("utf-8", "replace")
        ) from None
    if config_type not in _CONFIGS:
        msg = f"`{image}` is an artifact of the type `{config_type}`, not an image of containers"
        raise UnsupportedRequest(msg)
    return content


def _check_config(config: bytes, image: str) -> None:
    try:
        content = json.loads(config)
        layers = content["rootfs"]["diff_ids"]
        settings = content.get("config") or {}
        kinds = [(layers, list), (settings, dict), (settings.get("Env") or [], list)]
        kinds += [(settings.get("Labels") or {}, dict), (content.get("history") or [], list)]
        kinds += [(settings.get("WorkingDir") or "", str)]
        if not all(isinstance(value, kind) for value, kind in kinds):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UnexpectedReply(
            f"configuration of {image}", config.decode("utf-8", "replace")
        ) from None
    if content.get("os", "linux") != "linux":
        msg = f"`{image}` is an image for {content['os']}; a workspace can be added to Linux images"
        raise UnsupportedRequest(msg)
    if settings.get("OnBuild"):
        msg = (
            f"`{image}` has ONBUILD instructions, which only a builder can carry out; use"
            " image_builder=docker"
        )
        raise UnsupportedRequest(msg)


@dataclass(frozen=True)
class Node:
    """What an image has at a path.

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
    """Directories and links of a base image, read from as few layers as answer the question.

    The first layer and small ones are always read. A larger one is read if a directory in
    question is in none of them.
    """

    def __init__(self, base: BaseImage, cache: Cache, retries: Retries | None = None) -> None:
        self._base = base
        self._cache = cache
        self._retries = retries
        self._layers: list[_LayerTree | None] = []
        for number, layer in enumerate(base.layers):
            limit = _READ_ALWAYS if number else _READ_FIRST
            self._layers.append(self._read(layer) if layer["size"] <= limit else None)
        self._merged = self._merge()

    def known(self, path: str) -> Node | None:
        """What is at a path relative to the root, as far as layers were read."""
        return self._merged.get(path)

    def find(self, path: str) -> Node | None:
        """What is at a path relative to the root; ``None`` if nothing is there."""
        while path not in self._merged and None in self._layers:
            number = max(i for i, tree in enumerate(self._layers) if tree is None)
            self._layers[number] = self._read(self._base.layers[number])
            self._merged = self._merge()
        return self._merged.get(path)

    def _merge(self) -> dict[str, Node]:
        merged: dict[str, Node] = {}
        for tree in self._layers:
            if tree is not None:
                if tree.removed or tree.emptied:
                    merged = {p: n for p, n in merged.items() if not tree.hides(p)}
                merged.update(tree.nodes)
        return merged

    def _read(self, layer: Mapping[str, Any]) -> "_LayerTree":
        kept = self._cache.read("trees", layer["digest"])
        if kept is not None:
            return _LayerTree.from_json(kept)
        if layer.get("urls"):  # not in the registry
            return _LayerTree()
        digest, size = layer["digest"], layer["size"]
        logger.info("reading which directories are in layer `%s` (%d bytes)", digest, size)
        with Registry(self._base.reference.repository, retries=self._retries) as registry:
            tree = registry.read_blob(digest, lambda blob: _read_layer(blob, layer))
        self._cache.write("trees", digest, tree.to_json())
        return tree


@dataclass(frozen=True)
class _LayerTree:
    nodes: dict[str, Node] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    """Paths of lower layers that are gone, with what is below."""
    emptied: frozenset[str] = frozenset()
    """Directories of which lower layers' content is gone."""

    def hides(self, path: str) -> bool:
        """Whether a path of lower layers is not there any more."""
        if path in self.removed:
            return True
        folder = path
        while folder:
            folder = posixpath.dirname(folder)
            if folder in self.removed or folder in self.emptied:
                return True
        return False

    def to_json(self) -> bytes:
        nodes = {p: [n.kind, n.mode, n.uid, n.gid, n.target] for p, n in self.nodes.items()}
        return json.dumps([nodes, [*self.removed], [*self.emptied]]).encode()

    @classmethod
    def from_json(cls, text: bytes) -> "_LayerTree":
        nodes, removed, emptied = json.loads(text)
        return cls({p: Node(*n) for p, n in nodes.items()}, frozenset(removed), frozenset(emptied))


def _read_layer(blob: BinaryIO, layer: Mapping[str, Any]) -> _LayerTree:
    """What is in one layer; nothing if this Python does not know its compression."""
    stream = _decompressed(blob, layer["mediaType"])
    if stream is None:
        logger.warning(
            "layer `%s` is compressed with zstd, which this Python cannot read: what it does to"
            " the image's directories is not known (pip install zstandard)",
            layer["digest"],
        )
        return _LayerTree()
    nodes: dict[str, Node] = {}
    removed, emptied = set(), set()
    try:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
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
    except (tarfile.TarError, zlib.error, gzip.BadGzipFile, EOFError) as err:
        raise UnexpectedReply(f"layer {layer['digest']}", str(err)) from None
    return _LayerTree(nodes, frozenset(removed), frozenset(emptied))


def _node(member: tarfile.TarInfo) -> Node:
    if member.isdir():
        return Node("dir", member.mode & 0o7777, member.uid, member.gid)
    if member.issym():
        return Node("link", target=member.linkname)
    return Node("file")


def _decompressed(blob: BinaryIO, media_type: str) -> Any:
    """A reader of the archive; ``None`` where Python cannot decompress it."""
    if media_type.endswith("tar"):
        return blob
    if not media_type.endswith("zstd"):
        return gzip.GzipFile(fileobj=blob)  # which reads all members; `tarfile` only the first
    import importlib

    try:
        return importlib.import_module("compression.zstd").ZstdFile(blob)  # Python 3.14
    except ImportError:
        pass
    try:
        zstandard = importlib.import_module("zstandard")
        return zstandard.ZstdDecompressor().stream_reader(blob, read_across_frames=True)
    except ImportError:
        return None
