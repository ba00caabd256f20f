"""The image that a workspace is added to: its manifest and its configuration."""

import json
import os
import platform as host_platform
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchx.errors import InvalidInput, RefusedByRegistry, UnexpectedReply, UnsupportedRequest
from torchx.workspace._registry._blobs import has_digest
from torchx.workspace._registry._cache import Cache
from torchx.workspace._registry._client import (
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    OCI_INDEX,
    OCI_MANIFEST,
    Manifest,
    Registry,
)
from torchx.workspace._registry._reference import Reference, is_digest

if TYPE_CHECKING:
    from urllib3 import Retry

_MAX_CONFIG = 16 << 20
_CONFIGS = (
    "application/vnd.docker.container.image.v1+json",
    "application/vnd.oci.image.config.v1+json",
)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm/v7", "i686": "386"}


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
        """Absolute path of the workspace in the image."""
        settings = json.loads(self.config).get("config") or {}
        return posixpath.normpath(posixpath.join("/", settings.get("WorkingDir") or "/"))


def fetch_base(
    reference: Reference, cache: Cache, platform: str | None = None, retries: "Retry | None" = None
) -> BaseImage:
    """Fetches an image's manifest and configuration; cached parts are not fetched again.

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
        if config is None or not has_digest(descriptor["digest"], config):
            config = registry.get_blob(descriptor["digest"], _MAX_CONFIG)
            cache.write("configs", descriptor["digest"], config)
    _check_config(config, str(reference))
    return BaseImage(reference, manifest, config, tuple(content["layers"]))


def this_platform() -> str:
    """Linux on this machine's architecture."""
    machine = host_platform.machine().lower()
    return f"linux/{_ARCHITECTURES.get(machine, machine)}"


def pick_platform(index: bytes, wanted: str, image: str) -> str:
    """Returns the digest of the manifest for a platform in an index.

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
        f"there is no image `{image}` for the platform `{wanted}`, only for {names or 'none'};"
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
    """Returns the current digest of a name, or the tag if the registry does not report digests."""
    if reference.digest:
        return reference.digest
    found = registry.find_manifest(reference.version)
    if found is None:
        raise _no_such_image(reference)
    return found if is_digest(found) else reference.version


def _fetch_manifest(registry: Registry, version: str, cache: Cache) -> Manifest:
    """Fetches a manifest; by digest, which never changes, it is read from the cache if possible."""
    kept = cache.read("manifests", version) if ":" in version else None
    if kept is not None:
        media_type, _, data = kept.partition(b"\n")
        if has_digest(version, data):
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
    """Returns the manifest of one image, after checking the fields in use."""
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
